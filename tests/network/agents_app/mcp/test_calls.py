"""Calls of MCP servers' tools over real sockets, at both ages of the protocol."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

from agents_app.errors import ToolFailed
from agents_app.fair.threads import FairPool
from agents_app.mcp import pool as module
from agents_app.mcp import toolset
from agents_app.mcp.access import access
from agents_app.mcp.listing import source
from agents_app.mcp.pool import Pool, pool
from agents_app.mcp.toolset import WithServers
from agents_app.runtime.interface import Ask, FormAnswer, Limits
from agents_app.runtime.messages import Content
from agents_app.spec import McpSpec, ToolSpec
from agents_app.tools.toolset import ServerTools
from tests.fakes.mcp_server import PIXEL, McpServer, serving

LIMITS = Limits(connect=5, tool_seconds=30, tool_output_bytes=100_000)


@pytest.fixture(params=[False, True], ids=["2026", "before 2026"])
def server(request: pytest.FixtureRequest) -> Iterator[McpServer]:
    with serving(old=request.param) as found:
        yield found


@pytest.fixture
def old_server() -> Iterator[McpServer]:
    with serving(old=True) as found:
        yield found


@pytest.fixture(autouse=True)
async def _nothing_stays() -> AsyncIterator[None]:
    yield
    await pool().close()
    await eventually(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp")])


async def eventually(holds: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        await asyncio.sleep(0.01)


def tools(
    server: McpServer,
    owner: str = "one session",
    limits: Limits = LIMITS,
    headers: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> WithServers:
    spec = McpSpec("harbour", server.url, headers or {})
    specs = [ToolSpec(name, source("harbour", name), timeout=timeout) for name in (*server.offers, "gone")]
    own = ServerTools([], FairPool(1), "tenant", limits)
    return WithServers(own, specs, {"harbour": access(spec, values or {}, limits, owner)}, limits)


async def call(server: McpServer, name: str, arguments: Mapping[str, Any] | None = None, **given: Any) -> Content:
    ask: Ask | None = given.pop("ask", None)
    return await tools(server, **given).run(name, arguments or {}, ask)


async def failure(server: McpServer, name: str, arguments: Mapping[str, Any] | None = None, **given: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await call(server, name, arguments, **given)
    return caught.value.reason


async def in_thread(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, 60)


# --- what comes back ---


async def test_a_text_is_a_text(server: McpServer) -> None:
    assert await call(server, "read_file", {"path": "the log"}) == "what stands in the log"


async def test_each_kind_of_content_becomes_what_a_model_can_be_given(server: McpServer) -> None:
    image = {"type": "image", "url": f"data:image/png;base64,{PIXEL}"}
    assert await call(server, "everything") == [
        {"type": "text", "text": "a text"},
        image,
        {"type": "text", "text": "[audio of type audio/wav, which cannot be shown here]"},
        {"type": "text", "text": "[chart, to be found at chart://bay: The bay]"},
        {"type": "text", "text": "note://1:\na note"},
        image,
        {"type": "text", "text": "[a file of application/zip at zip://1, which cannot be shown here]"},
        {"type": "text", "text": '{"depth":7.5,"berths":["A","B"]}'},
    ]


async def test_structured_content_alone_is_its_json_in_its_order(server: McpServer) -> None:
    assert await call(server, "structured") == '{"z":1,"a":[true,null]}'


async def test_a_result_of_64_kilobytes_comes_whole(server: McpServer) -> None:
    assert await call(server, "large", {"bytes": 65_536}) == "x" * 65_536


async def test_a_result_over_the_agents_limit_is_cut_with_a_note(server: McpServer) -> None:
    found = await call(server, "large", {"bytes": 200_000})
    assert isinstance(found, str)
    assert len(found) == LIMITS.tool_output_bytes
    assert found.endswith("[cut after 100000 bytes]")


async def test_an_answer_without_end_is_not_read_and_harms_no_other_call(server: McpServer) -> None:
    assert await failure(server, "large", {"bytes": 5_000_000}) == "the MCP server harbour gave an answer that is too large"
    assert await call(server, "read_file", {"path": "x"}) == "what stands in x"
    if server.old:
        assert len(server.sessions) == 1


async def test_a_schema_that_nobody_understands_is_the_servers_to_judge(server: McpServer) -> None:
    given = {"at": {"x": None}, "how": "fast", "kind": [1.5], "new": {}}
    assert await call(server, "odd.name/with spaces", given) == repr(given)


# --- what goes wrong ---


async def test_a_tool_that_fails_says_so_in_its_own_words_without_the_headers(server: McpServer) -> None:
    headers = {"Authorization": "Bearer {token}"}
    said = await failure(server, "fail", headers=headers, values={"token": "canary-17"})
    assert said == "no such berth; you are ***"


async def test_an_error_of_the_protocol_is_told(server: McpServer) -> None:
    assert await failure(server, "refuse") == "the MCP server harbour answered with an error: that is no berth (-32602)"
    assert "Unknown tool: gone" in await failure(server, "gone")


async def test_a_server_that_is_down_cannot_be_reached_until_it_is_back(server: McpServer) -> None:
    assert await call(server, "read_file", {"path": "x"})
    server.stop()
    for _ in range(2):
        assert await failure(server, "read_file", {"path": "x"}) == "the MCP server harbour cannot be reached"
    server.start()
    assert await call(server, "read_file", {"path": "x"}) == "what stands in x"


async def test_a_server_that_has_forgotten_the_session_gets_a_new_one(old_server: McpServer) -> None:
    assert [await call(old_server, "visits") for _ in range(2)] == ["1", "2"]
    old_server.forget()
    assert await call(old_server, "visits") == "1"
    assert len(old_server.visits) == 2


async def test_who_is_not_let_in_is_told_so(server: McpServer) -> None:
    server.tokens = {"right": "Ada"}
    said = await failure(server, "who_am_i", headers={"Authorization": "Bearer wrong"})
    assert said == "the MCP server harbour does not let this session in; its credentials are missing or not accepted"
    assert await call(server, "who_am_i", headers={"Authorization": "Bearer right"}) == "Ada"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, "text/html", b"<p>Hello"), "gave an answer that cannot be understood"),
        ((200, "application/json", b"{"), "gave an answer that cannot be understood"),
        ((500, "text/plain", b"secret inside"), "failed"),
        ((404, "text/plain", b"nothing"), "gave an answer that cannot be understood"),
        ((202, "text/plain", b""), "answered with an error"),
    ],
)
async def test_what_is_no_mcp_server_is_a_word_and_nothing_of_it(
    server: McpServer, answer: tuple[int, str, bytes], words: str
) -> None:
    server.answers = answer
    said = await failure(server, "read_file", {"path": "x"})
    assert words in said
    assert "secret" not in said


async def test_headers_are_not_carried_to_another_place(server: McpServer) -> None:
    with serving(old=server.old) as elsewhere:
        server.redirect_to = elsewhere.url
        assert "failed" in await failure(server, "who_am_i", headers={"Authorization": "Bearer canary-17"})
        assert elsewhere.requests == []


async def test_an_untrusted_certificate_is_not_accepted(server: McpServer, caplog: pytest.LogCaptureFixture) -> None:
    spec = McpSpec("harbour", server.url.replace("http://", "https://"))
    found = access(spec, {}, LIMITS, "me")
    with pytest.raises(ToolFailed, match="cannot be reached"):
        await pool().call(found, "read_file", {}, 1000)
    assert "TLS" in caplog.text


def test_certificates_are_looked_at() -> None:
    from agents_app.mcp import http

    assert http._trust().verify_mode is ssl.CERT_REQUIRED
    assert http._trust().check_hostname


async def test_no_secret_is_in_any_log_or_error(server: McpServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "agents_app")
    given: dict[str, Any] = {"headers": {"Authorization": "Bearer {token}", "X-Key": "{token}"}, "values": {"token": "canary-17"}}
    said = [await failure(server, name, **given) for name in ("fail", "refuse", "gone")]
    server.stop()
    said.append(await failure(server, "read_file", {"path": "x"}, **given))
    server.start()
    said.append(repr(tools(server, **given)._accesses))
    assert "canary-17" not in "\n".join(
        [*said, *(record.getMessage() for record in caplog.records if "agents_app" in record.name)]
    )


# --- time ---


async def test_a_call_that_takes_too_long_ends_and_is_cancelled_at_its_server(server: McpServer) -> None:
    # Connected already, so that the time is the tool's.
    assert await call(server, "read_file", {"path": "x"})
    assert await failure(server, "slow", timeout=6) == "timed out after 6 s"
    assert await in_thread(server.slow_cancelled)
    assert await call(server, "read_file", {"path": "x"}) == "what stands in x"


async def test_a_run_that_is_cancelled_returns_at_once_and_its_server_hears_of_it(server: McpServer) -> None:
    running = asyncio.create_task(call(server, "slow"))
    assert await in_thread(server.slow_began)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 20
    assert await in_thread(server.slow_cancelled)


async def test_a_server_that_hangs_while_it_is_entered_costs_the_tools_time_at_most(server: McpServer) -> None:
    server.may_answer.clear()
    began = time.monotonic()
    assert await failure(server, "read_file", {"path": "x"}, timeout=0.3) == "timed out after 0.3 s"
    assert time.monotonic() - began < 10


async def test_calls_of_a_step_run_side_by_side_over_one_connection(old_server: McpServer) -> None:
    slow = asyncio.create_task(call(old_server, "slow"))
    assert await in_thread(old_server.slow_began)
    assert await call(old_server, "read_file", {"path": "x"}) == "what stands in x"
    old_server.slow_may_end.set()
    assert await slow == "at last"
    assert len(old_server.sessions) == 1


# --- whose connection ---


async def test_one_session_keeps_its_connection_from_call_to_call(old_server: McpServer) -> None:
    assert [await call(old_server, "visits") for _ in range(3)] == ["1", "2", "3"]


async def test_two_sessions_share_no_connection_even_with_the_same_headers(old_server: McpServer) -> None:
    assert [await call(old_server, "visits", owner=owner) for owner in ("one", "two", "one")] == ["1", "1", "2"]
    assert len(old_server.visits) == 2


async def test_a_session_whose_secret_changes_gets_another_connection(old_server: McpServer) -> None:
    old_server.tokens = {"hers": "Ada", "his": "Bob"}
    headers = {"Authorization": "Bearer {token}"}
    for token, who in (("hers", "Ada"), ("his", "Bob"), ("hers", "Ada")):
        assert await call(old_server, "who_am_i", headers=headers, values={"token": token}) == who
    by_session = {(request.session, request.authorization) for request in old_server.requests if request.session}
    assert len({session for session, _ in by_session}) == 2 == len(by_session)


async def test_idle_connections_are_closed_and_busy_ones_are_not(old_server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    slow = asyncio.create_task(call(old_server, "slow", owner="busy"))
    assert await in_thread(old_server.slow_began)
    await call(old_server, "visits", owner="idle")
    await eventually(lambda: pool().size == 1)
    await eventually(lambda: "DELETE" in {request.method for request in old_server.requests})
    assert not slow.done()
    old_server.slow_may_end.set()
    assert await slow == "at last"
    await eventually(lambda: pool().size == 0)


async def test_idle_connections_are_closed_though_the_task_that_looks_for_them_has_ended_once(
    server: McpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    drop = Pool._drop
    broken: list[str] = []

    def breaks_once(self: Pool, key: str) -> None:
        if not broken:
            broken.append(key)
            raise ValueError
        drop(self, key)

    monkeypatch.setattr(Pool, "_drop", breaks_once)
    await call(server, "read_file", {"path": "x"})
    await eventually(lambda: broken and pool().size == 0)
    assert "task_ended task='mcp-connections': ValueError" in caplog.text


async def test_connections_are_bounded_in_number(server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    slow = asyncio.create_task(call(server, "slow", owner="busy"))
    assert await in_thread(server.slow_began)
    for owner in ("a", "b", "c"):
        assert await call(server, "read_file", {"path": "x"}, owner=owner)
        assert pool().size <= 2
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 1)
    await eventually(lambda: pool().size <= 2)
    for key in [key for key, found in pool()._opened.items() if not found.busy]:
        pool()._drop(key)
    assert (
        await failure(server, "read_file", {"path": "x"}, owner="d") == "the MCP server harbour has too many connections already"
    )
    server.slow_may_end.set()
    await slow


def test_each_loop_has_a_pool_of_its_own() -> None:
    async def own() -> Pool:
        return pool()

    first, second = asyncio.run(own()), asyncio.run(own())
    assert first is not second


# --- questions ---


class User:
    """Answers forms as told, and keeps them."""

    def __init__(self, answer: FormAnswer) -> None:
        self.answer, self.forms = answer, list[Mapping[str, Any]]()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, form: Mapping[str, Any]) -> FormAnswer:
        self.forms.append(form)
        await self.may_answer.wait()
        return self.answer


async def test_a_servers_question_becomes_a_form_and_its_answer_goes_back(server: McpServer) -> None:
    user = User(FormAnswer("accept", {"name": "Ada", "side": "port", "length": 12, "tugs": True}))
    said = await call(server, "ask", ask=user)
    assert said == "accept: {'name': 'Ada', 'side': 'port', 'length': 12, 'tugs': True}"
    assert user.forms == [
        {
            "message": "Which ship?",
            "questions": [
                {"id": "name", "kind": "text", "message": "Ship", "required": True, "min": 2},
                {"id": "length", "kind": "integer", "message": "In metres", "required": False, "min": 1, "max": 400},
                {
                    "id": "side",
                    "kind": "single-select",
                    "message": "side",
                    "required": True,
                    "options": [{"id": "port", "label": "port"}, {"id": "starboard", "label": "starboard"}],
                },
                {"id": "tugs", "kind": "boolean", "message": "tugs", "required": False, "defaultValue": False},
            ],
        }
    ]


@pytest.mark.parametrize("response", ["decline", "cancel"])
async def test_a_form_that_is_not_filled_in_is_told_as_it_was(server: McpServer, response: Any) -> None:
    assert await call(server, "ask", ask=User(FormAnswer(response))) == f"{response}: None"


async def test_where_nobody_can_be_asked_questions_are_declined(server: McpServer) -> None:
    assert await call(server, "ask") == "decline: None"


async def test_a_server_that_knows_both_ages_can_ask_in_the_middle_of_a_call() -> None:
    """Some can ask only in the old way, though they know the new one."""
    user = User(FormAnswer("accept", {"name": "Ada", "side": "port"}))
    with serving(both=True) as server:
        assert await call(server, "ask_on", ask=user) == f"asked {toolset.MOST_QUESTIONS} times"
        assert server.sessions


async def test_a_server_cannot_ask_without_end(old_server: McpServer) -> None:
    user = User(FormAnswer("accept", {"name": "Ada", "side": "port"}))
    assert await call(old_server, "ask_on", ask=user) == f"asked {toolset.MOST_QUESTIONS} times"
    assert len(user.forms) == toolset.MOST_QUESTIONS


async def test_a_server_that_wants_the_user_at_another_address_is_declined(server: McpServer) -> None:
    user = User(FormAnswer("accept"))
    assert await call(server, "ask_link", ask=user) == "decline"
    assert user.forms == []


async def test_two_calls_at_once_ask_each_their_own_user(server: McpServer) -> None:
    users = [User(FormAnswer("accept", {"name": name, "side": "port"})) for name in ("Ada", "Bob")]
    for user in users:
        user.may_answer.clear()
    calls = [asyncio.create_task(call(server, "ask", ask=user)) for user in users]
    await eventually(lambda: all(user.forms for user in users))
    for user in reversed(users):
        user.may_answer.set()
    assert [str(await each) for each in calls] == [f"accept: {{'name': '{name}', 'side': 'port'}}" for name in ("Ada", "Bob")]


async def test_the_tools_time_stands_still_while_a_question_is_open(server: McpServer) -> None:
    user = User(FormAnswer("decline"))
    user.may_answer.clear()
    assert await call(server, "read_file", {"path": "x"})
    asking = asyncio.create_task(call(server, "ask", ask=user, timeout=8))
    await eventually(lambda: user.forms)
    # The tool's own time passes; that nothing happens then cannot be waited for in another way.
    assert await asyncio.wait({asking}, timeout=8.5) == (set(), {asking})
    user.may_answer.set()
    assert await asking == "decline: None"


async def test_a_question_that_nobody_answers_ends_the_call(server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolset, "QUESTION_SECONDS", 0.3)
    user = User(FormAnswer("accept"))
    user.may_answer.clear()
    assert await failure(server, "ask", ask=user) == "its question was not answered in time"


async def test_a_server_is_told_that_it_may_ask_and_that_it_may_not_use_our_models(server: McpServer) -> None:
    from agents_app.mcp.connection import Connection

    connection = Connection(access(McpSpec("harbour", server.url), {}, LIMITS, "me"), asks=True)
    await connection.open()
    assert connection._client is not None
    said = connection._client.session._build_capabilities(connection.protocol)
    assert said.elicitation is not None
    assert said.sampling is None
    assert said.roots is None
    await connection.close()
    assert connection.over
