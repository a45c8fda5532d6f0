"""What ``check_agents --connect`` says of MCP servers."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.fakes.mcp_server import McpServer, serving

AGENT = """
[[agents]]
name = "a"
model = "demo:"
[[agents.tools]]
builtin = "calculator"
name = "slow"
[[agents.options]]
type = "secret"
name = "token"
[[agents.mcp]]
name = "harbour"
url = "{url}"
"""


def check(tmp_path: Path, url: str, lines: str = "") -> tuple[str, str, int]:
    """Standard output, standard error, exit status."""
    path, out, err, status = tmp_path / "agents.toml", StringIO(), StringIO(), 0
    path.write_text(AGENT.replace("{url}", url) + lines)
    try:
        call_command("check_agents", str(path), "--connect", stdout=out, stderr=err)
    except SystemExit as ended:
        status = int(str(ended.code))
    return out.getvalue(), err.getvalue(), status


def test_a_server_is_shown_with_its_tools_as_the_agent_calls_them(tmp_path: Path) -> None:
    for old, version in ((False, "2026-07-28"), (True, "2025-11-25")):
        with serving(old=old) as server:
            out, err, status = check(tmp_path, server.url, 'include = ["read_file", "slow"]')
        assert out.splitlines()[-1] == (
            f"a MCP server harbour: http://127.0.0.1:{server.port}: OK"
            f" (MCP {version}, tools read_file, harbour_slow (its slow); 11 not taken)"
        )
        assert (err, status) == ("", 0)


def test_a_server_of_which_nothing_is_taken_is_a_fault(tmp_path: Path) -> None:
    with serving() as server:
        _, err, status = check(tmp_path, server.url, 'include = ["raed_file"]')
    assert "tools none; 13 not taken" in err
    assert status == 1


def test_a_server_that_wants_each_sessions_secret_is_none(tmp_path: Path) -> None:
    with serving(tokens={"hers": "Ada"}) as server:
        out, _, status = check(tmp_path, server.url, 'headers = { Authorization = "Bearer {token}" }')
        assert "needs each session's own token; its tools show when a turn runs" in out
        assert status == 0
        _, err, status = check(tmp_path, server.url, 'headers = { Authorization = "Bearer canary-fixed" }')
        assert "status 401: the headers are missing or not accepted" in err
        assert "canary" not in err
        assert status == 1


def test_what_is_wrong_with_a_server_is_said(tmp_path: Path) -> None:
    with serving() as server:
        for url, words in (
            (server.url.replace("/mcp", "/nothing"), "status 404: there is nothing at this path"),
            (server.url.replace("http:", "https:"), "TLS: "),
            (f"http://127.0.0.1:{McpServer().port}/mcp?key=canary-query", "the connection is refused"),
        ):
            _, err, status = check(tmp_path, url)
            assert words in err
            assert "canary" not in err
            assert status == 1
        for answer, words in (
            ((200, "text/html", b"<p>"), "it answers with text/html, which is not MCP"),
            ((503, "text/plain", b"later"), "status 503"),
            ((200, "application/json", b'{"hello": 1}'), "what it answers is not MCP"),
        ):
            server.answers = answer
            assert words in check(tmp_path, server.url)[1]
        server.answers, server.redirect_to = None, "http://127.0.0.1:9/elsewhere"
        assert "status 307: it redirects elsewhere, which is not followed" in check(tmp_path, server.url)[1]


def test_a_name_that_nobody_knows_is_said(tmp_path: Path, crossings: list[str]) -> None:
    _, err, status = check(tmp_path, "http://no-such-host.invalid/mcp")
    crossings.clear()
    assert "http://no-such-host.invalid: " in err
    assert status == 1


def test_a_server_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents_app.mcp.connection._HANDSHAKE_SECONDS", 0.1)
    with serving() as server:
        server.may_answer.clear()
        _, err, status = check(tmp_path, server.url, "[agents.limits]\nconnect = 0.2")
    assert "it does not answer in time" in err
    assert status == 1


def test_a_server_whose_tools_are_more_than_an_agent_takes_is_a_fault_that_names_the_limit(tmp_path: Path) -> None:
    with serving() as server:
        server.offer_many(40, 90_000)
        _, err, status = check(tmp_path, server.url, 'include = ["bulky_*"]')
    assert "left out: an agent takes 500 tools of a server, and 524,288 bytes of tools in all (AGENTHOST_TOOL_LIST_BYTES)" in err
    assert "it lists more than 2,000 tools or 2,097,152 bytes" in err
    assert status == 1
