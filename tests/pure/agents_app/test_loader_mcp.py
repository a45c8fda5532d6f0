"""The MCP servers of an agents file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_app import loader
from agents_app.errors import AgentsFileError
from agents_app.spec import AgentSpec, McpSpec

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
        ('command = "npx"\nargs = ["server"]', "command: MCP servers that are started as a process (stdio) are not supported"),
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


def test_a_process_is_refused_in_one_line_for_each_of_its_keys(tmp_path: Path) -> None:
    with pytest.raises(AgentsFileError) as caught:
        load(tmp_path, 'command = "npx"')
    assert len(caught.value.faults) == 1
