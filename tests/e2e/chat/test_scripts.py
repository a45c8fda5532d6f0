"""The chat in scripts: the answer on stdout, everything else on stderr, exit codes."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agenthost.chat import command
from agents_app.installation import manage
from ops.services import free_port
from tests.e2e.chat.conftest import PROGRAM, Desk
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.foreign_server import ForeignServer
from tests.fakes.model_server import ModelServer
from tests.fakes.pictures import png
from tests.paths import ROOT


def test_only_the_answer_is_on_stdout(desk: Desk, model: ModelServer) -> None:
    prompt = model.script(
        [steps.thinking("let me see"), steps.text("I look."), steps.call("tide_table", {"harbour": "Once"})],
        [steps.text("High at six.\n")],
    )
    done = desk.once("pilot", "--once", prompt, "--allow", "tide_table")
    assert done.returncode == 0
    assert done.stdout == "I look.\n\nHigh at six.\n"
    for said_aside in ("let me see", '→ tide_table(harbour="Once")', "= high 06:12", "Session sess_"):
        assert said_aside in done.stderr
    assert "\x1b" not in done.stderr


def test_the_message_is_read_from_stdin_where_that_is_no_terminal(desk: Desk) -> None:
    done = desk.once("echo", "--quiet", given="two\nlines\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "echo: two\nlines\n", "")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("shell", "words"), [("printf '\\377' | \"$@\"", "not UTF-8 text"), ('"$@" <&-', "The message is empty")]
)
def test_a_binary_or_closed_stdin_is_an_error(desk: Desk, shell: str, words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *PROGRAM, "echo"],
        env=desk.environment(),
        cwd=desk.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_calls_that_nobody_can_approve_are_denied(desk: Desk, hall: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "Lonely"})], [steps.text("then not")])
    done = desk.once("pilot", "--once", prompt)
    assert (done.returncode, done.stdout) == (0, "then not\n")
    assert "--allow tide_table" in done.stderr
    assert hall.tools.executions("tide_table", harbour="Lonely") == 0
    assert model.requests_of(prompt)[1].messages[-1]["content"].startswith("Tool call denied: no user is present")


@pytest.mark.slow
def test_output_of_a_tool_is_not_in_the_answer(desk: Desk, model: ModelServer) -> None:
    (desk.directory / "loud.py").write_text(
        'def shout(word: str) -> str:\n    "Shouts."\n    print("SHOUTING")\n    return word.upper()\n'
    )
    prompt = model.script([steps.call("shout", {"word": "ahoy"})], [steps.text("thank you")])
    done = desk.once("echo", "--once", prompt, "--tools", "loud")
    assert (done.returncode, done.stdout) == (0, "thank you\n")
    assert "SHOUTING" in done.stderr
    assert model.requests_of(prompt)[1].messages[-1]["content"] == "AHOY"


def test_model_text_in_a_pipe_has_no_control_characters(desk: Desk, model: ModelServer) -> None:
    done = desk.once("echo", "--once", model.script([steps.text("a\x1b[2Jb\tc\nd")]))
    assert done.stdout == "a␛[2Jb\tc\nd\n"


@pytest.mark.slow
def test_an_image_and_a_resumed_session_in_scripts(desk: Desk, model: ModelServer) -> None:
    (desk.directory / "boat.png").write_bytes(png())
    prompt, later = model.script([steps.text("seen")]), model.script([steps.text("again")])
    done = desk.once("echo", "--once", prompt, "--image", "boat.png", "--image", "https://pictures.example/boat.png")
    assert done.returncode == 0
    parts = model.requests_of(prompt)[0].messages[-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "image_url"]
    session = done.stderr.split("Session ")[1].strip()
    done = desk.once("--resume", session, "--once", later)
    assert (done.returncode, done.stdout) == (0, "again\n")
    assert len(model.requests_of(later)[0].messages) == 4


@pytest.mark.variants
@pytest.mark.parametrize(
    ("step", "code"),
    [(steps.finish("length"), 6), (steps.finish("content_filter"), 6), (steps.error_object(), 1)],
    ids=["a token limit", "a refusal", "a failure"],
)
def test_exit_codes_of_incomplete_answers_and_failed_turns_differ(
    desk: Desk, model: ModelServer, step: steps.Step, code: int
) -> None:
    done = desk.once("echo", "--once", model.script([steps.text("so far"), step]))
    assert (done.returncode, done.stdout) == (code, "so far\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ecko", "--once", "x"], 2, "There is no agent 'ecko'; did you mean echo?"),
        (["--once", "x"], 2, "No agent given. Available:"),
        (["echo"], 2, "The message is empty"),
        (["echo", "--once", "x", "--option", "tone=x"], 2, "echo has no option 'tone'"),
        (["pilot", "--once", "x", "--option", "units=cubits"], 2, "units cannot be 'cubits'; choose one of metric, imperial"),
        (["pilot", "--once", "x", "--option", "model_key=sk-seen"], 2, "model_key is a secret"),
        (["pilot", "--once", "x", "--option", "units"], 2, "needs a terminal"),
        (["pilot", "--once", "x", "--option-env", "units=NOT_SET"], 2, "NOT_SET is not set"),
        (["pilot", "--once", "x", "--trust", "tide_tabel"], 2, "did you mean tide_table?"),
        (["echo", "--once", "x", "--tools", "no_such_module"], 2, "there is no module 'no_such_module'"),
        (["echo", "--once", "x", "--tools", "missing.py"], 2, "There is no file missing.py"),
        (["echo", "--once", "x", "--tool-file", "missing.json"], 2, "missing.json cannot be read"),
        (["echo", "--once", "x", "--image", "missing.png"], 2, "There is no file missing.png"),
        (["echo", "--once", "x", "--image", "http://insecure.example/x.png"], 2, "an https:// URL"),
        (["echo", "--once", "x", "--resume", "sess_none"], 2, "There is no session sess_none, or this key has no access to it"),
        (["echo", "--once", "x", "--url", "ftp://there"], 2, "'ftp://there' is not the URL of a server"),
        (["echo", "--once", "x", "--url", "https://user:secret@there"], 2, "must not contain a user, password"),
        (["echo", "--once", "x", "--key-file", "missing"], 2, "missing cannot be read"),
        (["echo", "--once", "x", "--key", "two words"], 2, "This is not a valid key"),
        (["echo", "--once", "x", "--key", "ah_wrong"], 4, "The server does not accept this key (401)"),
    ],
)
def test_usage_errors_have_one_line_and_an_exit_code(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    for name, value in desk.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.directory)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    # In this process, because a start of the program takes longer than all of these.
    assert command.main(arguments) == code
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert words in stderr
    assert stderr.startswith("agenthost-chat: ")
    assert "sk-seen" not in stderr
    assert "two words" not in stderr


@pytest.mark.slow
def test_without_key_and_terminal_the_error_names_the_variable(desk: Desk) -> None:
    done = desk.once("echo", "--once", "x", environment={"AGENTHOST_KEY": ""})
    assert done.returncode == 2
    assert "set AGENTHOST_KEY" in done.stderr


@pytest.mark.slow
def test_a_key_without_the_scope_has_another_error_than_a_wrong_key(desk: Desk, hall: Server) -> None:
    done = desk.once("echo", "--once", "x", environment={"AGENTHOST_KEY": hall.keys.reader})
    assert done.returncode == 4
    assert "This key is not allowed to do this (403): This key lacks the scope sessions:write." in done.stderr


def test_an_unreachable_chat_server_is_named_with_the_reason(desk: Desk) -> None:
    done = desk.once("echo", "--once", "x", "--url", f"127.0.0.1:{free_port()}")
    assert done.returncode == 3
    assert "connection refused" in done.stderr


@pytest.mark.slow
def test_servers_of_other_protocols_are_recognized(desk: Desk, hall: Server) -> None:
    done = desk.once("echo", "--once", "x", "--url", f"{hall.origin()}/aap/v2")
    assert done.returncode == 3
    assert "AAP version 2 at this address; this client needs 3" in done.stderr
    done = desk.once("echo", "--once", "x", "--url", f"{hall.origin()}/readyz")
    assert done.returncode == 3
    assert "No AAP endpoint at" in done.stderr


@pytest.mark.slow
def test_a_refused_message_is_shown_with_the_json_pointer(desk: Desk, stranger: ForeignServer) -> None:
    errors = [{"pointer": "/messages/0/content", "detail": "too \x1b[1mblunt"}]
    problem = json.dumps({"title": "Unprocessable", "detail": "Not so.", "errors": errors}).encode()
    stranger.answers = [(201, {"Content-Type": "application/json"}, b'{"sessionId":"one"}'), (422, {}, problem)]
    done = desk.once("stranger", "--once", "x", "--url", stranger.url)
    assert done.returncode == 2
    assert "The server refused this (422): Not so.\n  /messages/0/content: too ␛[1mblunt\n" in done.stderr


def test_the_chat_waits_for_a_limit_and_says_so(desk: Desk, stranger: ForeignServer) -> None:
    created = (201, {"Content-Type": "application/json"}, b'{"sessionId":"one"}')
    stranger.answers = [
        (503, {"Retry-After": "0"}, b"starting"),
        created,
        (429, {"Retry-After": "1"}, b'{"detail":"One turn a second."}'),
    ]
    done = desk.once("stranger", "--once", "hello", "--url", stranger.url)
    assert (done.returncode, done.stdout) == (0, "you said: hello\n")
    assert "The server is not ready. Retrying in 0.5 s" in done.stderr
    assert "Limit reached (One turn a second). Retrying in 1 s; Ctrl-C cancels." in done.stderr


LIMITED = """
import django
django.setup()
from sessions_app.core.tenancy import keys
from sessions_app.core.base.caller import Limits
from sessions_app.models import ApiKey
import sys
keys.set_limits(ApiKey.objects.get(prefix=sys.argv[1]), Limits(turns_per_minute=1), actor="test")
"""


@pytest.mark.slow
def test_a_limit_longer_than_the_wait_ends_the_chat(desk: Desk, hall: Server) -> None:
    key = hall.new_tenant().key
    assert key is not None
    hall.manage(key[:11], code=LIMITED)
    first = desk.once("echo", "--once", "one", environment={"AGENTHOST_KEY": key})
    assert first.returncode == 0
    assert "(Limit used up: turns per minute of key; resets in" in first.stderr
    second = desk.once("echo", "--once", "two", "--wait", "0", environment={"AGENTHOST_KEY": key})
    assert second.returncode == 5
    assert "Limit reached (429): This key has reached its limit of 1 turns per minute." in second.stderr


@pytest.mark.slow
def test_a_turn_already_running_is_reported(desk: Desk, hall: Server, model: ModelServer) -> None:
    session = hall.alice.create()
    with hall.alice.stream(session, model.script([steps.text("busy"), steps.gate("busy")])) as stream:
        stream.until("text_delta")
        done = desk.once("--resume", session, "--once", "me too")
        assert done.returncode == 5
        assert "(409): A turn is already running in this session." in done.stderr
        model.open_gate("busy")
        stream.rest()


def test_an_interrupted_script_stops_the_turn_at_the_server(desk: Desk, model: ModelServer) -> None:
    prompt = model.script([steps.text("begun"), steps.hang()])
    with desk.piped("echo", "--once", prompt) as piped:
        assert piped.read() == b"begun"
        piped.process.send_signal(signal.SIGINT)
        out, err = piped.process.communicate(timeout=60)
    assert piped.process.returncode == 130
    assert out == b"\n"
    assert b"Stopped" in err
    assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"


def test_a_closed_pipe_stops_the_turn(desk: Desk, model: ModelServer) -> None:
    prompt = model.script([steps.text("begun"), steps.gate("reader has left"), steps.text("and on"), steps.hang()])
    with desk.piped("echo", "--once", prompt, "--quiet") as piped:
        assert piped.read() == b"begun"
        piped.stdout.close()
        model.open_gate("reader has left")
        assert piped.process.wait(60) == 141
        assert piped.stderr.read() == b""
    assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"


def test_the_key_may_come_from_a_file(desk: Desk, hall: Server) -> None:
    (desk.directory / "key").write_text(f"{hall.keys.alice}\n")
    done = desk.once("echo", "--once", "hi", "--key-file", "key", environment={"AGENTHOST_KEY": "ah_other"})
    assert (done.returncode, done.stdout) == (0, "echo: hi\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["echo"], "There are several tenants. Choose one with --tenant (alice, bob"),
        pytest.param(
            ["echo", "--tenant", "carol"],
            f"There is no tenant 'carol'. Create it with: {manage('create_tenant carol')}",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["echo", "--url", "https://agents.example"],
            "No key: set AGENTHOST_KEY, or use --key-file",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_manage_chat_issues_no_key_without_a_tenant_and_none_for_other_servers(
    hall: Server, arguments: list[str], words: str
) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "chat", *arguments, "--once", "x"],
        env=hall.environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert not [line for line in hall.manage("list_keys", "--all").splitlines() if "manage.py chat" in line and "active" in line]


@pytest.mark.slow
def test_the_installed_program_runs(desk: Desk, tmp_path: Path) -> None:
    """What pip makes of the project: a wheel with everything the server needs, and the script."""
    pytest.importorskip("setuptools", minversion="77")
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    shutil.copy(ROOT / "pyproject.toml", source)
    for package in ("agenthost", "agents_app", "sessions_app"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for shared in itertools.chain.from_iterable(project["tool"]["setuptools"]["data-files"].values()):
        (source / shared).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / shared, source / shared)
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(source)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *install]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert made.returncode == 0, made.stderr
    shipped = {path.relative_to(site) for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    for package in ("agenthost", "agents_app", "sessions_app"):
        needed = {path.relative_to(source) for path in (source / package).rglob("*") if path.is_file()}
        assert needed <= shipped, f"left out: {sorted(map(str, needed - shipped))}"
    script = site / "bin" / "agenthost-chat"
    done = subprocess.run(
        [str(script), "echo", "--once", "installed"],
        env=desk.environment(PYTHONPATH=str(site)),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "echo: installed\n"), done.stderr
