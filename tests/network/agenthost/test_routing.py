"""The whole ASGI application behind a real server, without turns."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from pytest_django import Settings
from rest_framework.request import Request
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from agenthost import home_page, routing, static_files
from sessions_app.aap import views
from sessions_app.aap.views import Streamed
from sessions_app.core.base import byte_budget, database, log_context
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AnswersFull, NotAuthenticated
from sessions_app.core.tenancy import admission, key_watch, keys
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota
from tests.serving import Connection, serving

KEY = f"ah_{'k' * 43}"
BEARER = f"Bearer {KEY}"


@pytest.fixture
def port() -> Iterator[int]:
    with serving(routing.application) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[Connection]:
    with Connection(port) as connection:
        yield connection


def refuse(_raw: str) -> None:
    raise NotAuthenticated


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key was good when it was last seen."""
    monkeypatch.setitem(admission._tenants, keys.digest_of(KEY), 7)


@pytest.mark.rule("A1")
@pytest.mark.usefixtures("known")
def test_each_turn_is_for_the_session_of_its_path(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_view: views.Turns, _request: Request, session_id: str) -> HttpResponse:
        return HttpResponse(session_id)

    monkeypatch.setattr(keys, "authenticate", lambda _raw: Caller(tenant=7, key=1, key_prefix="", scopes=frozenset({"*"})))
    monkeypatch.setattr(views.Turns, "post", started)
    for name, meant in (("one", b"one"), ("two", b"two"), ("t%20w", b"t w")):
        assert client.ask("POST", f"/aap/v3/sessions/{name}/turns", authorization=BEARER).body == meant
    # These versions have no such path, and this name is two.
    for path in ("/aap/v1/sessions/one/turns", "/aap/v9/sessions/one/turns", "/aap/v9/sessions", "/aap/v3/sessions/o%2Fn/turns"):
        assert client.ask("POST", path, authorization=BEARER).status == 404
    refused = client.ask("PUT", "/aap/v3/sessions/one/turns", authorization=BEARER)
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert client.ask("PUT", "/aap/v3/sessions", authorization=BEARER).headers["allow"] == "GET, HEAD, POST"


@pytest.mark.rule("A1", "A6", "A122")
@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("path", ["/aap", "/aap/", "/aap/v3", "/aap/v9/meta", "/aap/v3/nowhere"])
def test_an_unknown_path_of_the_protocol_is_a_problem_with_the_requests_id(client: Connection, path: str) -> None:
    answer = client.ask("GET", path, authorization=BEARER, x_request_id="mine-1")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    assert (answer.json["instance"], answer.headers["x-request-id"]) == ("mine-1", "mine-1")
    assert answer.headers["content-length"] == str(len(answer.body))


def test_an_unknown_page_is_a_plain_text_404(client: Connection) -> None:
    answer = client.ask("GET", "/nowhere")
    assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.rule("A6", "A122")
def test_a_database_that_is_away_is_503_and_not_500(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_raw: str) -> None:
        raise OperationalError("connection refused by 10.1.2.3")

    monkeypatch.setattr(keys, "authenticate", fail)
    answer = client.ask("GET", "/aap/v3/meta", authorization=BEARER)
    assert answer.status == 503
    assert answer.headers["retry-after"].isdecimal()
    assert b"10.1.2.3" not in answer.body


@pytest.mark.rule("A4", "A6")
def test_the_message_of_an_unexpected_exception_is_not_sent(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_raw: str) -> None:
        raise ZeroDivisionError("the server's insides")

    monkeypatch.setattr(keys, "authenticate", fail)
    answer = client.ask("GET", "/aap/v3/meta", authorization=BEARER)
    assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")
    assert b"insides" not in answer.body


@pytest.mark.rule("A6", "A122")
def test_a_request_that_waits_too_long_behind_others_is_503(
    client: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_DATABASE_POOL_MAX = 2
    settings.AGENTHOST_DATABASE_POOL_WAIT = 0.05
    database.shut_down()
    looking, may_end = threading.Event(), threading.Event()

    def look(_raw: str) -> None:
        looking.set()
        assert may_end.wait(60)
        raise NotAuthenticated

    monkeypatch.setattr(keys, "authenticate", look)
    with ThreadPoolExecutor(1) as other:
        standing = other.submit(asyncio.run, admission.authenticate(KEY, "", 60))
        try:
            assert looking.wait(60)
            answer = client.ask("GET", "/aap/v3/meta", authorization=BEARER)
        finally:
            may_end.set()
        assert isinstance(standing.exception(60), NotAuthenticated)
    database.shut_down()
    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"].isdecimal()


class SlowText:
    """The page at /, which takes as long as the test decides."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Semaphore(0), threading.Event()

    def format_map(self, _addresses: dict[str, str]) -> str:
        self.began.release()
        assert self.may_end.wait(60)
        return "the page"


@pytest.fixture
def four_pages(settings: Settings) -> None:
    """Four pages at a time, and so two of one address; a third does not wait for long."""
    settings.AGENTHOST_DATABASE_POOL_MAX = 16
    settings.AGENTHOST_DATABASE_POOL_WAIT = 0.05


@pytest.mark.usefixtures("four_pages")
def test_pages_of_one_address_use_a_share_of_the_database_connections(
    client: Connection, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SlowText()
    monkeypatch.setattr(home_page, "TEXT", text)
    with Connection(port) as first, Connection(port) as second:
        for connection in (first, second):
            connection.head("GET", "/")
            assert text.began.acquire(timeout=60)
        answer = client.ask("GET", "/")
        text.may_end.set()
        assert [connection.answer().body for connection in (first, second)] == [b"the page"] * 2
    assert (answer.status, answer.headers["content-type"]) == (503, "text/plain; charset=utf-8")
    assert answer.headers["retry-after"].isdecimal()
    assert client.ask("GET", "/").body == b"the page"


@pytest.mark.usefixtures("four_pages")
def test_a_slow_form_does_not_block_other_pages(client: Connection, port: int) -> None:
    with ExitStack() as slow:
        for _ in range(4):
            connection = slow.enter_context(Connection(port))
            connection.head("POST", "/accounts/login/", content_type="application/x-www-form-urlencoded", content_length="1000")
            connection.send(b"username=")
        assert client.ask("GET", "/").status == 200


def test_pages_are_delayed_for_an_address_with_too_many_requests(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    delayed = []

    async def slow_down() -> None:
        delayed.append("/")

    monkeypatch.setattr(admission, "_PAGES_AT_ONCE", 2)
    monkeypatch.setattr(admission, "_PAGES_PER_SECOND", 0.001)
    monkeypatch.setattr(admission, "_slow_down", slow_down)
    assert [client.ask("GET", "/").status for _ in range(3)] == [200] * 3
    assert delayed == ["/"]


@pytest.mark.rule("A2")
def test_a_wrong_key_is_refused_while_its_body_is_not_sent_yet(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "authenticate", refuse)
    client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_type="application/json", content_length="8000000")
    client.send(b"x" * 100_000)
    answer = client.answer()
    assert (answer.status, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.headers["connection"] == "close"


@pytest.mark.rule("A2")
@pytest.mark.usefixtures("known")
def test_a_revoked_key_is_refused_before_its_next_body(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "authenticate", refuse)
    assert client.ask("POST", "/aap/v3/sessions", b"{}", authorization=BEARER, content_type="application/json").status == 401
    client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_type="application/json", content_length="8000000")
    assert client.answer().status == 401


@pytest.mark.rule("A6")
def test_wrong_keys_of_one_address_are_429_over_both_protocols(
    client: Connection, port: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_WRONG_KEYS_PER_MINUTE = 3
    monkeypatch.setattr(keys, "authenticate", refuse)
    monkeypatch.setattr(admission, "_SLOWED_SECONDS", 0.0)
    wrong = [f"Bearer ah_{letter * 43}" for letter in "abcd"]
    answers = [client.ask("GET", "/aap/v3/meta", authorization=each) for each in wrong]
    assert [answer.status for answer in answers] == [401, 401, 401, 429]
    assert answers[-1].headers["content-type"] == "application/problem+json"
    assert int(answers[-1].headers["retry-after"]) > 0
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{port}/ahp?token={KEY}", proxy=None):
        pass
    assert refused.value.response.status_code == 429
    assert int(refused.value.response.headers["retry-after"]) > 0


@pytest.mark.usefixtures("known")
def test_the_access_log_has_the_ids_of_the_request(
    client: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    about: list[dict[str, str]] = []

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            about.append(log_context.facts())

    def fail(_raw: str) -> None:
        log_context.bind(tenant=7)
        raise NotAuthenticated

    notes = Notes()
    access_log = logging.getLogger("agenthost.access")
    access_log.addHandler(notes)
    try:
        monkeypatch.setattr(keys, "authenticate", fail)
        with caplog.at_level(logging.INFO, "agenthost.access"):
            client.ask("GET", "/aap/v3/meta", authorization=BEARER, x_request_id="mine-2")
            # The line follows the answer; a second answer on the same connection comes after it.
            client.ask("GET", "/healthz")
    finally:
        access_log.removeHandler(notes)
    assert {"request": "mine-2", "tenant": "7"} in about


def test_static_files_are_served_without_collectstatic(client: Connection) -> None:
    answer = client.ask("GET", "/static/admin/css/base.css")
    assert (answer.status, answer.headers["content-type"]) == (200, 'text/css; charset="utf-8"')
    assert answer.body
    etag = answer.headers["etag"]
    assert client.ask("GET", "/static/admin/css/base.css", if_none_match=etag).status == 304
    part = client.ask("GET", "/static/admin/css/base.css", range="bytes=0-9")
    assert (part.status, part.body) == (206, answer.body[:10])
    assert client.ask("GET", "/static/../agenthost/settings.py").status == 404
    assert client.ask("GET", "/static/admin/css/nothing.css").status == 404


def test_the_files_of_a_page_are_kept_for_ever_under_an_address_that_changes_with_them(client: Connection) -> None:
    page = client.ask("GET", "/accounts/login/").body.decode()
    address = next(part for part in page.split('"') if part.endswith("/agenthost/people.js"))
    assert address == f"/static/{static_files.digest()}/agenthost/people.js"
    answer = client.ask("GET", address)
    assert (answer.status, answer.headers["cache-control"]) == (200, "max-age=31536000, public, immutable")
    # What its modules import has the same digest, because the address is relative.
    module = client.ask("GET", f"/static/{static_files.digest()}/agenthost/playground/aap.js")
    assert (module.status, module.headers["cache-control"]) == (200, "max-age=31536000, public, immutable")


@pytest.mark.parametrize("address", ["/static/agenthost/people.js", f"/static/{'0' * 16}/agenthost/people.js"])
def test_a_file_under_an_address_that_may_change_is_revalidated(client: Connection, address: str) -> None:
    answer = client.ask("GET", address)
    assert (answer.status, answer.headers["cache-control"]) == (200, "max-age=0, public")
    assert client.ask("GET", address, if_none_match=answer.headers["etag"]).status == 304
    assert client.ask("GET", address.replace("people", "nothing")).status == 404


def test_slow_readers_of_a_file_share_one_copy_of_it(client: Connection, rf: RequestFactory) -> None:
    large = "/static/drf_spectacular_sidecar/redoc/bundles/redoc.standalone.js"
    first, second = (static_files._response(rf.get(large)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert len(first.content) > 1_000_000
    assert first.content is second.content
    # A long part would be a copy for each of them.
    part = client.ask("GET", large, range="bytes=1-")
    assert (part.status, part.body) == (200, first.content)


def test_pages_have_security_headers(client: Connection) -> None:
    answer = client.ask("GET", "/accounts/login/")
    assert answer.status == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"


def test_protocol_responses_set_no_cookie(client: Connection) -> None:
    answer = client.ask("GET", "/aap/v3/nowhere", authorization=BEARER)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(("path", "status"), [("/ahp", 401), ("/elsewhere", 404)])
def test_a_websocket_without_a_key_or_a_path_is_refused_before_it_opens(port: int, path: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refusal, connect(f"ws://127.0.0.1:{port}{path}"):
        pass
    assert refusal.value.response.status_code == status


async def test_lifespan_events_are_answered() -> None:
    told: list[str] = []
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, str]:
        return {"type": next(messages)}

    async def send(message: dict[str, str]) -> None:
        told.append(message["type"])

    await asyncio.wait_for(routing.application({"type": "lifespan"}, receive, send), 5)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.usefixtures("known")
@pytest.mark.rule("A93")
def test_a_body_larger_than_djangos_memory_limit_is_accepted(client: Connection, settings: Settings) -> None:
    body = b'{"x":"' + b"y" * (5 * 1024 * 1024) + b'"}'
    answer = client.ask("POST", "/aap/v3/nowhere", body, authorization=BEARER, content_type="application/json")
    assert answer.status == 404


@pytest.mark.usefixtures("known")
async def test_a_connection_can_ask_whether_the_key_of_its_unread_answer_is_still_good(monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {"headers": [(b"authorization", BEARER.encode())], "agenthost": {"address": "127.0.0.1"}}
    assert await routing.check_key(scope) is None
    good = {KEY}
    monkeypatch.setattr(keys, "is_good", good.__contains__)
    assert await scope["agenthost"]["key_is_good"]()
    good.clear()
    assert not await scope["agenthost"]["key_is_good"]()


@pytest.mark.usefixtures("known")
@pytest.mark.rule("A100")
def test_answers_that_a_tenant_does_not_read_are_bounded_and_the_first_is_whole(
    port: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_ANSWERS_BYTES = 30_000_000
    large = b"x" * 20_000_000
    made = threading.Event()

    def respond(_handler: routing.ProtocolHandler, _request: HttpRequest) -> HttpResponse:
        made.set()
        return HttpResponse(large, headers={"Content-Length": str(len(large))})

    monkeypatch.setattr(routing.ProtocolHandler, "get_response", respond)
    with Connection(port) as slow, Connection(port) as client:
        slow.head("GET", "/aap/v3/meta", authorization=BEARER)
        assert made.wait(10)
        assert slow.readable(10)
        refused = client.ask("GET", "/aap/v3/meta", authorization=BEARER)
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert slow.answer().body == large
        # The server notices a moment after the last byte.
        until = time.monotonic() + 10
        while client.ask("GET", "/aap/v3/meta", authorization=BEARER).status == 503:
            assert time.monotonic() < until


@pytest.mark.usefixtures("known")
@pytest.mark.rule("A100")
def test_a_large_response_is_counted_before_it_is_built_and_released_afterwards(
    port: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_ANSWERS_BYTES = 30_000_000
    building, may_build = threading.Event(), threading.Event()
    before = byte_budget.ANSWERS.held

    def respond(_handler: routing.ProtocolHandler, _request: HttpRequest) -> HttpResponse:
        try:
            byte_budget.reserve(20_000_000)
        except AnswersFull:
            return HttpResponse("full", status=503)
        building.set()
        assert may_build.wait(60)
        return HttpResponse("shorter than it was thought")

    monkeypatch.setattr(routing.ProtocolHandler, "get_response", respond)
    with Connection(port) as first, Connection(port) as client:
        first.head("GET", "/aap/v3/meta", authorization=BEARER)
        assert building.wait(10)
        assert byte_budget.ANSWERS.held == before + 20_000_000
        assert client.ask("GET", "/aap/v3/meta", authorization=BEARER).status == 503
        may_build.set()
        assert first.answer().status == 200
        assert client.ask("GET", "/aap/v3/meta", authorization=BEARER).status == 200
        until = time.monotonic() + 10
        while byte_budget.ANSWERS.held != before:
            assert time.monotonic() < until


async def test_a_request_and_its_body_are_freed_while_the_answer_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(100_000)
    references = sys.getrefcount(body)
    requests: list[weakref.ref[HttpRequest]] = []
    sent: list[bytes] = []

    async def chunks() -> AsyncGenerator[bytes]:
        async with asyncio.timeout(10):
            # The thread of the view may have its arguments a moment longer.
            while sys.getrefcount(body) != references or requests[0]() is not None:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0)
        yield b"."

    def respond(_handler: routing.ProtocolHandler, request: HttpRequest) -> StreamingHttpResponse:
        assert request.read() == body
        requests.append(weakref.ref(request))
        slot = Slot(Quota.STREAMS_AT_ONCE, Caller(tenant=7, key=1, key_prefix="", scopes=frozenset({"*"})))
        response = Streamed(slot, chunks(), "text/event-stream")
        # As Django does, and so keeps the request.
        response._resource_closers.append(request.close)  # type: ignore[attr-defined]  # its stub lacks it
        return response

    given = [body]

    async def receive() -> dict[str, Any]:
        if given:
            return {"type": "http.request", "body": given.pop()}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    monkeypatch.setattr(routing.ProtocolHandler, "get_response", respond)
    scope = {"type": "http", "method": "POST", "path": "/aap/v3/sessions", "headers": [], "query_string": b"", "agenthost": {}}
    await asyncio.wait_for(routing.ProtocolHandler()(scope, receive, send), 60)
    assert sent == [b"", b".", b""]


@pytest.mark.rule("A2")
@pytest.mark.usefixtures("known")
def test_a_client_that_reads_nothing_is_dropped_when_its_key_has_ended(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller(tenant=7, key=1, key_prefix="", scopes=frozenset({"*"}))
    revoked, begun, over = threading.Event(), threading.Event(), threading.Event()

    def callers(ids: Collection[int]) -> dict[int, Caller]:
        return {} if revoked.is_set() else dict.fromkeys(ids, caller)

    async def flood(slot: Slot) -> AsyncGenerator[bytes]:
        """It cannot end by itself: it waits for its client, and for nothing else."""
        try:
            with key_watch.watching(slot):
                while True:
                    yield bytes(100_000)
                    begun.set()
                    await asyncio.sleep(0)
        finally:
            over.set()

    def respond(_handler: routing.ProtocolHandler, _request: HttpRequest) -> StreamingHttpResponse:
        slot = Slot(Quota.STREAMS_AT_ONCE, caller).keep()
        return Streamed(slot, flood(slot), "text/event-stream")

    monkeypatch.setattr(keys, "callers", callers)
    monkeypatch.setattr(routing.ProtocolHandler, "get_response", respond)
    client.head("GET", "/aap/v3/sessions/s/events/stream", authorization=BEARER)
    assert begun.wait(60)
    assert not over.is_set()
    revoked.set()
    assert over.wait(60)
