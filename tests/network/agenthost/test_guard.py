"""The ASGI guard before Django, over a real socket."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from pytest_django import Settings
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from agenthost.edge import bodies
from agenthost.guard import HEALTH_PATHS, PAGE_BODY_BYTES, Guard, Receive, Scope, Send
from sessions_app.aap.problems import Problem
from sessions_app.core.base.buckets import Bucket, Buckets
from sessions_app.core.tenancy import admission
from tests.serving import Answer, Connection, Recorder, serving

KEY = "ah_" + "k" * 43
BEARER = f"Bearer {KEY}"
SANE = re.compile(r"[A-Za-z0-9._-]{1,128}")
LIMIT = 4096


@pytest.fixture
def behind() -> Recorder:
    return Recorder()


@pytest.fixture
def port(settings: Settings, behind: Recorder) -> Iterator[int]:
    settings.AGENTHOST_MAX_BODY_BYTES = LIMIT
    settings.AGENTHOST_CORS_ORIGINS = ["*"]
    settings.ALLOWED_HOSTS = ["*"]
    with serving(Guard(behind)) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[Connection]:
    with Connection(port) as connection:
        yield connection


def is_problem(answer: Answer, status: int) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert problem["status"] == status
    assert {"type", "title", "detail"} <= problem.keys()
    assert problem["instance"] == answer.headers["x-request-id"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


# --- keys ---


@pytest.mark.rule("A2")
@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer ah_short", f"Bearer {KEY}x", f"Bearer{KEY}", KEY]
)
def test_without_a_well_formed_key_the_request_is_refused_before_its_body(
    client: Connection, behind: Recorder, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    client.head("POST", "/aap/v3/sessions", content_length="1000", **headers)
    answer = client.answer()
    is_problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert not behind.asked.is_set()
    assert KEY not in answer.body.decode()


@pytest.mark.rule("A2")
def test_two_authorization_headers_are_refused(client: Connection) -> None:
    client.send(f"GET /aap/v3/meta HTTP/1.1\r\nhost: x\r\nauthorization: {BEARER}\r\nauthorization: {BEARER}\r\n\r\n".encode())
    is_problem(client.answer(), 401)


@pytest.mark.rule("A2")
@pytest.mark.parametrize("authorization", [BEARER, f"bearer {KEY}", f"BEARER  {KEY} "])
def test_a_well_formed_key_passes(client: Connection, behind: Recorder, authorization: str) -> None:
    assert client.ask("POST", "/aap/v3/sessions", b"{}", authorization=authorization).status == 200
    assert behind.seen == [("POST", "/aap/v3/sessions", 2)]


@pytest.mark.rule("A2")
def test_public_meta_needs_no_key_but_refuses_a_wrong_one(client: Connection, settings: Settings) -> None:
    is_problem(client.ask("GET", "/aap/v3/meta"), 401)
    settings.AGENTHOST_PUBLIC_META = True
    assert client.ask("GET", "/aap/v3/meta").status == 200
    is_problem(client.ask("GET", "/aap/v3/meta", authorization="Bearer nonsense"), 401)
    is_problem(client.ask("GET", "/aap/v3/sessions"), 401)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/admin/", "/", "/aapx"])
def test_pages_need_no_key(client: Connection, path: str) -> None:
    assert client.ask("GET", path).status == 200


def test_a_connection_is_kept_after_a_refusal_without_a_body(client: Connection) -> None:
    is_problem(client.ask("GET", "/aap/v3/meta"), 401)
    assert client.ask("GET", "/aap/v3/meta", authorization=BEARER).status == 200


@pytest.mark.rule("A1")
def test_a_refused_head_has_no_body(client: Connection) -> None:
    answer = client.ask("HEAD", "/aap/v3/meta")
    assert answer.status == 401
    assert client.ask("GET", "/healthz").status == 200


# --- bodies ---


@pytest.mark.rule("A93", "A4")
def test_a_body_with_a_content_length_over_the_limit_is_refused_unread(client: Connection, behind: Recorder) -> None:
    client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length=str(LIMIT + 1))
    is_problem(client.answer(), 413)
    assert not behind.asked.is_set()


@pytest.mark.rule("A93")
def test_a_body_of_just_the_limit_passes(client: Connection, behind: Recorder) -> None:
    assert client.ask("POST", "/aap/v3/sessions", b"x" * LIMIT, authorization=BEARER).status == 200
    assert behind.seen == [("POST", "/aap/v3/sessions", LIMIT)]


@pytest.mark.rule("A93", "A4")
def test_a_chunked_body_over_the_limit_is_refused_while_it_arrives(client: Connection, behind: Recorder) -> None:
    client.head("POST", "/aap/v3/sessions", authorization=BEARER, transfer_encoding="chunked")
    client.send(chunk(b"x" * (LIMIT + 1)))
    answer = client.answer()
    is_problem(answer, 413)
    assert answer.headers["connection"] == "close"
    assert behind.seen == []


@pytest.mark.rule("A93", "A4")
def test_a_client_that_sends_everything_before_it_reads_gets_its_413(
    client: Connection, settings: Settings, behind: Recorder
) -> None:
    settings.AGENTHOST_MAX_BODY_BYTES = 1024 * 1024
    body = b"x" * (2 * 1024 * 1024)
    is_problem(client.ask("POST", "/aap/v3/sessions", body, authorization=BEARER), 413)
    assert client.closed()


@pytest.mark.rule("A4")
def test_a_body_that_does_not_arrive_times_out(port: int, settings: Settings, behind: Recorder) -> None:
    settings.AGENTHOST_BODY_SECONDS = 0.2
    with Connection(port) as client:
        client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length="100")
        client.send(b"{")
        began = time.monotonic()
        is_problem(client.answer(), 408)
        assert time.monotonic() - began < 15
        assert behind.seen == []


def test_a_stream_outlives_the_time_limit_of_bodies(port: int, settings: Settings, behind: Recorder) -> None:
    settings.AGENTHOST_BODY_SECONDS = 0.1
    with Connection(port) as client:
        # In one piece: a client that gets no time between head and body would be late.
        head = f"POST /aap/v3/sessions HTTP/1.1\r\nhost: testserver\r\nauthorization: {BEARER}\r\ncontent-length: 2\r\n\r\n"
        client.send(head.encode() + b"{}")
        assert client.answer().body == b"data: x\n\n" * 3


@pytest.mark.rule("A4")
@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "deflate"])
def test_an_encoded_body_is_415(client: Connection, coding: str) -> None:
    is_problem(client.ask("POST", "/aap/v3/sessions", b"\x1f\x8b", authorization=BEARER, content_encoding=coding), 415)


@pytest.mark.rule("A4", "A5")
def test_identity_encoding_and_encodings_without_a_body_are_accepted(client: Connection) -> None:
    assert client.ask("POST", "/aap/v3/sessions", b"{}", authorization=BEARER, content_encoding="Identity").status == 200
    assert client.ask("GET", "/aap/v3/sessions", authorization=BEARER, content_encoding="gzip").status == 200


def test_expect_continue_is_refused_before_the_body_is_sent(client: Connection) -> None:
    client.head("POST", "/aap/v3/sessions", content_length="10", expect="100-continue")
    is_problem(client.answer(), 401)


# --- origins ---

PAGE = "https://app.example"


def cors_fields(answer: Answer) -> set[str]:
    return {name for name in answer.headers if name.startswith("access-control-")}


@pytest.mark.rule("A95")
@pytest.mark.parametrize(
    "path", ["/aap/v3/sessions", "/aap/v2/session", "/aap/v1/meta", "/aap/v3/nowhere", "/healthz", "/somewhere"]
)
@pytest.mark.parametrize("headers", [{}, {"origin": PAGE, "access_control_request_method": "POST"}])
def test_options_is_answered_everywhere_without_a_key(
    client: Connection, behind: Recorder, path: str, headers: dict[str, str]
) -> None:
    answer = client.ask("OPTIONS", path, **headers)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert set(answer.headers["access-control-allow-methods"].split(", ")) == {"GET", "POST", "PUT", "DELETE", "OPTIONS"}
    assert set(answer.headers["access-control-allow-headers"].split(", ")) == {
        "Authorization",
        "Content-Type",
        "Accept",
        "Idempotency-Key",
        "Last-Event-ID",
        "X-Request-Id",
        "X-Turn-Deadline",
    }
    assert int(answer.headers["access-control-max-age"]) > 0
    assert not behind.asked.is_set()


def test_pages_may_change_things_over_the_management_api(client: Connection) -> None:
    answer = client.ask("OPTIONS", "/api/webhooks/hook_1", origin=PAGE, access_control_request_method="PATCH")
    assert set(answer.headers["access-control-allow-methods"].split(", ")) == {"GET", "POST", "PATCH", "DELETE", "OPTIONS"}


@pytest.mark.rule("A95")
@pytest.mark.parametrize("listed", [["*"], [PAGE]])
def test_every_answer_of_the_guard_carries_the_allowed_origin(client: Connection, settings: Settings, listed: list[str]) -> None:
    settings.AGENTHOST_CORS_ORIGINS = listed
    settings.AGENTHOST_BODY_SECONDS = 0.2
    page = {"origin": PAGE, "authorization": BEARER}

    def ask(method: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        with Connection(client.port) as connection:
            connection.head(method, path, **headers)
            connection.send(body)
            return connection.answer()

    answers = {
        200: ask("GET", "/aap/v3/meta", **page),
        401: ask("GET", "/aap/v3/meta", origin=PAGE),
        408: ask("POST", "/aap/v3/sessions", content_length="9", **page),
        413: ask("POST", "/aap/v3/sessions", content_length=str(LIMIT + 1), **page),
        415: ask("POST", "/aap/v3/sessions", b"x", content_length="1", content_encoding="gzip", **page),
        500: ask("GET", "/aap/v3/broken", **page),
    }
    settings.ALLOWED_HOSTS = ["agents.example"]
    answers[400] = ask("GET", "/aap/v3/meta", host="evil.example", **page)
    for status, answer in answers.items():
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == ("*" if listed == ["*"] else PAGE)
        exposed = {"Retry-After", "Location", "X-Request-Id", "X-Turn-Id", "RateLimit", "RateLimit-Policy"}
        assert set(answer.headers["access-control-expose-headers"].split(", ")) == exposed
        assert "access-control-allow-credentials" not in answer.headers
        assert (answer.headers.get("vary") == "Origin") is (listed != ["*"])


@pytest.mark.rule("A95")
def test_only_the_operators_origins_are_allowed(client: Connection, settings: Settings) -> None:
    settings.AGENTHOST_CORS_ORIGINS = [PAGE, "http://localhost:5173"]
    for origin in (PAGE, "http://localhost:5173"):
        good = client.ask("GET", "/aap/v3/meta", origin=origin, authorization=BEARER)
        assert good.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-methods" in client.ask("OPTIONS", "/aap/v3/meta", origin=origin).headers
    for other in ({"origin": "https://evil.example"}, {"origin": "https://app.example.evil"}, {"origin": "null"}, {}):
        answer = client.ask("GET", "/aap/v3/meta", authorization=BEARER, **other)
        assert answer.status == 200
        asked = client.ask("OPTIONS", "/aap/v3/meta", **other)
        assert asked.status == 204
        for refused in (answer, asked):
            assert not cors_fields(refused)
            # Or a cache would give one page the answer that another was refused.
            assert refused.headers["vary"] == "Origin"


@pytest.mark.rule("A95")
@pytest.mark.parametrize("listed", [["*"], [PAGE]])
@pytest.mark.parametrize("path", ["/admin", "/admin/", "/admin/login/", "/console/", "/accounts", "/accounts/login/"])
def test_the_admin_has_no_cors_headers(client: Connection, settings: Settings, listed: list[str], path: str) -> None:
    settings.AGENTHOST_CORS_ORIGINS = listed
    for answer in (client.ask("GET", path, origin=PAGE), client.ask("OPTIONS", path, origin=PAGE)):
        assert answer.status in (200, 204)
        assert not cors_fields(answer)
    assert cors_fields(client.ask("GET", "/administrators", origin=PAGE))


# --- request ids ---


@pytest.mark.rule("A122")
def test_a_well_formed_request_id_is_kept_and_reaches_django(client: Connection, behind: Recorder) -> None:
    answer = client.ask("GET", "/aap/v3/meta", authorization=BEARER, x_request_id="trace-1.a_B")
    assert answer.headers["x-request-id"] == "trace-1.a_B"
    assert behind.request_ids == ["trace-1.a_B"]


@pytest.mark.rule("A122")
@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<script>", 'a"b', "é"])
def test_a_malformed_request_id_is_replaced(client: Connection, behind: Recorder, given: str) -> None:
    answer = client.ask("GET", "/aap/v3/meta", authorization=BEARER, x_request_id=given)
    assert SANE.fullmatch(answer.headers["x-request-id"])
    assert answer.headers["x-request-id"] != given
    assert behind.request_ids == [answer.headers["x-request-id"]]


# --- the rest ---


def test_an_unknown_host_is_refused_except_for_health_checks(client: Connection, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["agents.example"]
    assert client.ask("GET", "/aap/v3/meta", authorization=BEARER, host="agents.example:8000").status == 200
    is_problem(client.ask("GET", "/aap/v3/meta", authorization=BEARER, host="evil.example"), 400)
    assert client.ask("GET", "/healthz", host="10.0.0.7").status == 200


def test_every_https_response_has_hsts(behind: Recorder, settings: Settings) -> None:
    settings.SECURE_HSTS_SECONDS = 3600
    for proxied in ({}, {"x_forwarded_proto": "http"}):
        with serving(Guard(behind)) as port, Connection(port) as client:
            assert "strict-transport-security" not in client.ask("GET", "/aap/v3/meta", **proxied).headers
    with serving(cast(Any, ProxyHeadersMiddleware(cast(Any, Guard(behind)), "127.0.0.1"))) as port:
        for key in ({}, {"authorization": BEARER}):
            with Connection(port) as client:
                answer = client.ask("GET", "/aap/v3/meta", x_forwarded_proto="https", **key)
                assert answer.headers["strict-transport-security"] == "max-age=3600"


@pytest.mark.rule("A6")
def test_the_response_to_an_unexpected_failure_contains_only_an_id(client: Connection, caplog: pytest.LogCaptureFixture) -> None:
    answer = client.ask("GET", "/aap/v3/broken", authorization=BEARER)
    is_problem(answer, 500)
    assert b"secret" not in answer.body
    assert "a secret of the server" in caplog.text


def test_the_access_log_has_no_query(client: Connection, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agenthost.access")
    client.ask("GET", "/aap/v3/sessions?token=hush", authorization=BEARER)
    # The line is written after the answer: the next answer on the connection comes after it.
    client.ask("GET", "/healthz")
    lines = [record.getMessage() for record in caplog.records if record.name == "agenthost.access"]
    assert len(lines) == 1
    assert lines[0].startswith("GET /aap/v3/sessions 200 ")
    assert "hush" not in lines[0]


# --- before the body ---


WRONG = Problem(401, "The key is not valid.")


async def nobody(_scope: Scope) -> Problem | None:
    return WRONG


async def anybody(_scope: Scope) -> Problem | None:
    return None


@pytest.mark.rule("A2")
def test_a_wrong_key_is_refused_before_its_body_is_read(behind: Recorder, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    with serving(Guard(behind, nobody)) as port, Connection(port) as client:
        client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length="8000000")
        client.send(b"x" * 1000)
        is_problem(client.answer(), 401)
        assert not behind.asked.is_set()


@pytest.mark.rule("A2")
def test_little_of_an_unauthenticated_body_is_read(behind: Recorder, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    with serving(Guard(behind, nobody)) as port, Connection(port) as client:
        client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length="800000000")
        is_problem(client.answer(), 401)
        # One megabyte is dropped, some more fits into the buffers between, and then the connection is closed.
        with pytest.raises(ConnectionError):
            client.send(b"x" * 100_000_000)


def test_one_address_has_a_bounded_number_of_requests_at_once_also_behind_a_proxy(
    settings: Settings,
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.AGENTHOST_PROXIES = "127.0.0.1"
    settings.AGENTHOST_CONNECTIONS_PER_ADDRESS = 2
    entered, may_end = threading.Semaphore(0), threading.Event()

    async def slow(_scope: Scope, receive: Receive, send: Send) -> None:
        entered.release()
        await asyncio.to_thread(may_end.wait, 60)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with serving(Guard(slow, anybody), proxy_headers=True, forwarded_allow_ips="127.0.0.1") as port, ExitStack() as stack:
        first, second, third, other, proxy = (stack.enter_context(Connection(port)) for _ in range(5))
        for client in (first, second):
            client.head("GET", "/aap/v3/meta", authorization=BEARER, x_forwarded_for="198.51.100.4")
            assert entered.acquire(timeout=10)
        answer = third.ask("GET", "/aap/v3/meta", authorization=BEARER, x_forwarded_for="198.51.100.4")
        is_problem(answer, 429)
        assert int(answer.headers["retry-after"]) > 0
        # Another address, and a proxy that reports none.
        other.head("GET", "/aap/v3/meta", authorization=BEARER, x_forwarded_for="198.51.100.4, 198.51.100.5")
        proxy.head("GET", "/aap/v3/meta", authorization=BEARER)
        assert entered.acquire(timeout=10)
        assert entered.acquire(timeout=10)
        may_end.set()
        assert [client.answer().status for client in (first, second, other, proxy)] == [200] * 4
        assert third.ask("GET", "/aap/v3/meta", authorization=BEARER, x_forwarded_for="198.51.100.4").status == 200


def test_pages_accept_a_form_but_no_larger_body(client: Connection, settings: Settings) -> None:
    settings.AGENTHOST_MAX_BODY_BYTES = 64 * 1024 * 1024
    client.head("POST", "/admin/login/", content_length=str(PAGE_BODY_BYTES + 1))
    assert client.answer().status == 413


def test_incomplete_bodies_are_limited_in_total(behind: Recorder, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.AGENTHOST_MAX_BODY_BYTES = 100_000
    settings.AGENTHOST_BODIES_BYTES = 200_000
    before = bodies.BUDGET.held

    async def one_tenant(scope: Scope) -> Problem | None:
        scope["agenthost"]["owner"] = 7
        return None

    with serving(Guard(behind, one_tenant)) as port, Connection(port) as first, Connection(port) as second:
        first.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length="80000")
        first.send(b"x" * 79_999)
        assert behind.asked.wait(60)
        while bodies.BUDGET.held < before + 79_999:
            time.sleep(0.001)
        second.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length="80000")
        second.send(b"x" * 80_000)
        answer = second.answer()
        is_problem(answer, 503)
        assert int(answer.headers["retry-after"]) > 0
        first.send(b"x")
        assert first.answer().status == 200
        # What was held is free again.
        with Connection(port) as third:
            assert third.ask("POST", "/aap/v3/sessions", b"x" * 80_000, authorization=BEARER).status == 200


def test_a_body_is_not_counted_any_more_while_its_answer_streams(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.AGENTHOST_MAX_BODY_BYTES = 100_000
    settings.AGENTHOST_BODIES_BYTES = 200_000
    may_end = threading.Event()

    async def stream(_scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        await asyncio.to_thread(may_end.wait, 60)
        await send({"type": "http.response.body", "body": b"k"})

    with serving(Guard(stream, anybody)) as port, ExitStack() as stack:
        clients = [stack.enter_context(Connection(port)) for _ in range(3)]
        try:
            for client in clients:
                client.head("POST", "/aap/v3/sessions", authorization=BEARER, content_length="80000")
                client.send(b"x" * 80_000)
                # The head alone: the rest comes when all three have theirs.
                assert client.answer("HEAD").status == 200
        finally:
            may_end.set()


@pytest.fixture
def delays(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per delayed request; each address has three requests without a delay."""
    settings.ALLOWED_HOSTS = ["*"]
    delayed: list[int] = []

    async def slow_down() -> None:
        delayed.append(1)

    monkeypatch.setattr(admission, "_slow_down", slow_down)
    for name in ("_refusals", "_health"):
        monkeypatch.setattr(admission, name, Buckets(lambda: Bucket(0.001, 3), 10))
    return delayed


@pytest.mark.parametrize("authorization", [None, "Bearer ah_short", BEARER])
def test_many_refusals_of_one_address_are_delayed_and_other_requests_are_not(
    behind: Recorder, delays: list[int], authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    with serving(Guard(behind, nobody)) as port, Connection(port) as client:
        assert [client.ask("GET", "/aap/v3/meta", **headers).status for _ in range(5)] == [401] * 5
        assert len(delays) == 2
    with serving(Guard(behind, anybody)) as port, Connection(port) as client:
        assert client.ask("GET", "/aap/v3/meta", authorization=BEARER).status == 200
        assert len(delays) == 2


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("OPTIONS", "/aap/v3/meta", 204), ("GET", "/ahp", 426), ("GET", "/healthz", 200), ("GET", "/readyz", 200)],
)
def test_frequent_requests_without_a_key_are_delayed_per_address(
    behind: Recorder, delays: list[int], method: str, path: str, status: int
) -> None:
    with serving(Guard(behind, nobody)) as port, Connection(port) as client:
        assert [client.ask(method, path).status for _ in range(5)] == [status] * 5
        assert len(delays) == 2
        # Refusals and health checks are counted separately.
        assert client.ask("GET", "/ahp" if path in HEALTH_PATHS else "/healthz").status in (200, 426)
        assert len(delays) == 2
