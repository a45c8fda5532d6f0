"""The MCP servers of an agents file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_app import loader
from agents_app.errors import AgentsFileError
from agents_app.spec import AgentSpec, McpSpec, ProgramSpec

AGENT = """
[[agents]]
name = "a"
model = "demo:"
[[agents.options]]
type = "select"
name = "region"
options = ["eu", "us"]
[[agents.options]]
type = "secret"
name = "token"
[[agents.options]]
type = "secret"
name = "own"
default = "sk-operators"
[[agents.options]]
type = "text"
name = "free"
[[agents.mcp]]
name = "files"
"""
FULL = """
url = "https://mcp.example.com/{region}/mcp"
headers = { Authorization = "Bearer {token}" }
include = ["read_*"]
exclude = ["read_secret"]
expose = false
timeout = 5
"""


def load(tmp_path: Path, lines: str, agent: str = AGENT) -> AgentSpec:
    path = tmp_path / "agents.toml"
    path.write_text(agent + lines)
    return loader.load(path)[0]


def test_all_that_can_be_said_of_a_server_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, FULL).mcp == (
        McpSpec(
            name="files",
            url="https://mcp.example.com/{region}/mcp",
            headers={"Authorization": "Bearer {token}"},
            include=("read_*",),
            exclude=("read_secret",),
            expose=False,
            timeout=5,
        ),
    )


def test_a_name_and_an_address_are_enough(tmp_path: Path) -> None:
    assert load(tmp_path, 'url = "http://localhost:9/mcp"').mcp == (McpSpec("files", "http://localhost:9/mcp"),)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("", "url: is required"),
        ('url = "ftp://x/mcp"', "url: must be an http or https address"),
        ('url = "https://user:word@x/mcp"', "url: must be an http or https address without user"),
        ('url = "https://{free}/mcp"', "url: the option free is a text; only select options are allowed here"),
        ('url = "https://x/{token}"', "url: the option token is a secret; only select options are allowed here"),
        ('url = "https://x/{nothing}"', "url: there is no option nothing"),
        ('url = "https://x/mcp"\nheaders = { A = "{nothing}" }', "headers: there is no option nothing"),
        ('url = "https://x/mcp"\nheaders = { Mcp-Session-Id = "1" }', "headers: Mcp-Session-Id is set by the server itself"),
        (
            'url = "https://{region}.x/mcp"\nheaders = { Authorization = "Bearer {own}" }',
            "url: the default of the secret own would be sent to a host that the client chooses",
        ),
        ('url = "https://x/sse"', "is an address of MCP's older transport (sse)"),
        ('url = "https://x/mcp"\ntransport = "sse"', "transport: sse is not supported"),
        ('command = ["npx"]\nargs = ["server"]', "args: write the arguments in command"),
        ('command = ["npx"]\ncwd = "/"', "cwd: a server starts in a directory of its own"),
        ("command = []", "command: names no program"),
        ('command = [" "]', "command: names no program"),
        ('command = ["x"]\nurl = "https://x/mcp"', "url: there is a command already"),
        ('command = ["x"]\nheaders = { A = "b" }', "headers: there is a command already"),
        ('url = "https://x/mcp"\nenv = { A = "b" }', "env: has no effect without command"),
        ('url = "https://x/mcp"\nnetwork = true', "network: has no effect without command"),
        ('command = ["x", "{workspace}"]', '{workspace} needs workspace = "read" or "write"'),
        ('command = ["{workspace}/x"]\nworkspace = "read"', "command: the program must not be in the workspace"),
        (
            'command = ["x"]\nper = "tenant"\nworkspace = "read"',
            'workspace: a workspace is a session\'s: it needs per = "session"',
        ),
        ('command = ["x"]\nper = "server"', "per: must be one of session, tenant"),
        ('command = ["x"]\nworkspace = "all"', "workspace: must be one of none, read, write"),
        ('command = ["x"]\nmemory_bytes = 1', "memory_bytes: must be at least 16777216"),
        ('command = ["x"]\nprocesses = 100000', "processes: must be at most 10000"),
        ('command = ["x"]\nidle_seconds = 1000000', "idle_seconds: must be at most 86400"),
        ('command = ["x"]\nenv = { "A-B" = "b" }', "env: 'A-B' is not a variable's name"),
        ('command = ["x"]\nenv = { A = 1 }', "env: A must be a string"),
        ('command = ["x"]\nenv = { A = "{nothing}" }', "env: there is no option nothing"),
        ('command = ["x"]\nenv = { LD_PRELOAD = "{free}" }', "env: LD_PRELOAD decides what code runs; the option free is a text"),
        ('command = ["x"]\nenv = { NODE_OPTIONS = "{token}" }', "env: NODE_OPTIONS decides what code runs"),
        ('url = "https://x/mcp"\ncolour = 1', "colour: unknown key"),
        ('url = "https://x/mcp"\ntimeout = 0', "timeout: must be more than 0 seconds"),
        ('url = "https://x/mcp"\ninclude = "read"', "include: must be a list of strings"),
        (
            'url = "https://x/mcp"\n[[agents.mcp]]\nname = "files"\nurl = "https://y/mcp"',
            "duplicate MCP server name files",
        ),
        ('url = "https://x/mcp"\n[[agents.mcp]]\nname = "f:x"\nurl = "https://y/mcp"', "name: must have 1 to 32 characters"),
        ('url = "https://x/mcp"\n[[agents.mcp]]\nurl = "https://y/mcp"', "name: is required"),
    ],
)
def test_what_cannot_be_is_a_fault_that_names_its_key(tmp_path: Path, lines: str, fault: str) -> None:
    with pytest.raises(AgentsFileError) as caught:
        load(tmp_path, lines)
    faults = [str(each) for each in caught.value.faults]
    assert any(fault in each and "agents[0].mcp[" in each and "(a)" in each for each in faults), faults
    assert "sk-operators" not in str(caught.value)


def test_all_that_can_be_said_of_a_program_is_read(tmp_path: Path) -> None:
    lines = """
    command = ["files-server", "--root", "{workspace}", "{not an option}"]
    env = { TOKEN = "Bearer {token}", NOTE = "{free}", PATH = "/opt/{region}/bin", MODE = "quiet" }
    per = "session"
    workspace = "write"
    network = true
    memory_bytes = 268435456
    processes = 8
    start_seconds = 60
    idle_seconds = 10.5
    include = ["read_*"]
    """
    program = ProgramSpec(
        command=("files-server", "--root", "{workspace}", "{not an option}"),
        env={"TOKEN": "Bearer {token}", "NOTE": "{free}", "PATH": "/opt/{region}/bin", "MODE": "quiet"},
        workspace="write",
        network=True,
        memory_bytes=268_435_456,
        processes=8,
        start_seconds=60,
        idle_seconds=10.5,
    )
    assert load(tmp_path, lines).mcp == (McpSpec("files", include=("read_*",), program=program),)


def test_a_name_and_a_command_are_enough(tmp_path: Path) -> None:
    (server,) = load(tmp_path, 'command = ["uvx", "mcp-server-time"]\nper = "tenant"').mcp
    assert server == McpSpec("files", program=ProgramSpec(("uvx", "mcp-server-time"), per="tenant"))


def test_a_command_that_is_no_list_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(AgentsFileError) as caught:
        load(tmp_path, 'command = "npx"')
    assert [each.reason for each in caught.value.faults] == ["must be a list of strings"]
