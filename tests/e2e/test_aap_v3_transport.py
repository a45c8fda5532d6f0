"""AAP version 3 on the wire: paths, keys, bodies, errors, headers, sizes."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.client import Client, check_problem, pointers, turn_body, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

MIB = 1024 * 1024

ENDPOINTS = [
    ("GET", "/meta"),
    ("GET", "/sessions"),
    ("POST", "/sessions"),
    ("GET", "/sessions/{id}"),
    ("DELETE", "/sessions/{id}"),
    ("GET", "/sessions/{id}/history?type=full"),
    ("POST", "/sessions/{id}/turns"),
    ("POST", "/sessions/{id}/cancel"),
    ("GET", "/sessions/{id}/events/stream?stream=delta"),
]


def exchange(server: Server, request: bytes, timeout: float = 90.0) -> bytes:
    """Send bytes; returns the response up to its end or until the server closes."""
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=timeout) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            got = connection.recv(65536)
            assert got, f"closed without an answer: {answer!r}"
            answer += got
        return answer


def post_raw(client: Client, path: str, content: bytes, content_type: str | None = "application/json", **headers: str) -> int:
    given = {**headers, **({"Content-Type": content_type} if content_type is not None else {})}
    response = client.http.post(path, content=content, headers=given)
    if response.status_code >= 400:
        check_problem(response)
    return response.status_code


# --- paths and methods ---


@pytest.mark.rule("A1", "A6")
@pytest.mark.parametrize("path", ["/nope", "/meta/", "/sessions/", "/session", "/sessions/x/nope", "/", ""])
def test_a_path_that_does_not_exist_is_404(alice: Client, path: str) -> None:
    assert alice.get(path).status_code == 404


@pytest.mark.rule("A1", "A6")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/meta", {"GET"}),
        ("DELETE", "/sessions", {"GET", "POST"}),
        ("POST", "/sessions/{id}", {"GET", "DELETE"}),
        ("PATCH", "/sessions/{id}", {"GET", "DELETE"}),
        ("GET", "/sessions/{id}/turns", {"POST"}),
        ("POST", "/sessions/{id}/history", {"GET"}),
        ("GET", "/sessions/{id}/cancel", {"POST"}),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(alice: Client, method: str, path: str, allowed: set[str]) -> None:
    response = alice.request(method, path.format(id=alice.create()))
    assert response.status_code == 405
    assert allowed <= {method.strip() for method in response.headers["Allow"].split(",")}


@pytest.mark.rule("A1")
@pytest.mark.parametrize("path", ["/meta", "/sessions", "/sessions/{id}", "/sessions/{id}/history?type=full"])
def test_head_answers_as_get_does_without_the_body(alice: Client, path: str) -> None:
    path = path.format(id=alice.create())
    head, get = alice.request("HEAD", path), alice.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


# --- keys ---


@pytest.mark.rule("A2", "A6")
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
@pytest.mark.parametrize("authorization", [None, "Bearer ah_unknown", "Basic YTpi", "Bearer", "Bearer a b", "Bearer ä", "{key}"])
def test_no_key_or_a_bad_one_is_401_with_a_challenge(
    server: Server, alice: Client, method: str, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {b"Authorization": authorization.format(key=server.keys.alice).encode()}
    client = server.client(None)
    response = client.http.request(method, path.format(id="sess_x"), headers=headers)
    check_problem(response)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.rule("A2")
@pytest.mark.parametrize("word", ["Bearer", "bearer", "BEARER"])
def test_the_bearer_scheme_is_case_insensitive(server: Server, word: str) -> None:
    response = server.client(None).get("/meta", headers={"Authorization": f"{word} {server.keys.alice}"})
    assert response.status_code == 200


@pytest.mark.rule("A2")
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_a_key_without_the_scope_is_403_before_anything_else_is_looked_at(server: Server, method: str, path: str) -> None:
    poor = server.client(server.keys.without_meta if path == "/meta" else server.keys.meta_only)
    body: dict[str, Any] = {"content": b"{not json", "headers": {"Content-Type": "text/plain"}} if method == "POST" else {}
    assert poor.request(method, path.format(id="sess_never"), **body).status_code == 403


@pytest.mark.rule("A2")
def test_a_key_with_read_scopes_cannot_write(server: Server, alice: Client) -> None:
    session = alice.create()
    reader = server.client(server.keys.reader)
    assert reader.meta()["version"] == 3
    assert reader.session(session)["sessionId"] == session
    assert reader.history(session) == []
    assert reader.post("/sessions", {"agent": {"name": "echo"}}).status_code == 403
    assert reader.post(f"/sessions/{session}/turns", turn_body("hi")).status_code == 403
    assert reader.post(f"/sessions/{session}/cancel").status_code == 403
    assert reader.request("DELETE", f"/sessions/{session}").status_code == 403
    assert alice.history(session) == []


@pytest.mark.rule("A2")
@pytest.mark.parametrize("authorization", ["", "Authorization: Bearer !!\r\n", "Authorization: Basic YTpi\r\n"])
def test_a_missing_or_malformed_key_is_refused_before_the_body_is_read(server: Server, authorization: str) -> None:
    head = f"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\n{authorization}Content-Length: 9000\r\n\r\n"
    assert exchange(server, head.encode()).startswith(b"HTTP/1.1 401")


# --- bodies ---


@pytest.mark.rule("A4")
@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b'{"agent":{"name":"echo"}}', "text/plain", 415),
        (b'{"agent":{"name":"echo"}}', None, 415),
        (b'{"agent":{"name":"echo"}}', "application/x-www-form-urlencoded", 415),
        (b'{"agent":{"name":"echo"}}', "application/json; charset=utf-8", 201),
        (b'{"agent":{"name":"echo"}}', "Application/JSON", 201),
        (b"{not json", "application/json", 400),
        (b'{"agent":{"name":"echo"}', "application/json", 400),
        (b'{"agent":{"name":"echo"}} x', "application/json", 400),
        (b"", "application/json", 400),
        (b"   ", "application/json", 400),
        (b'{"agent":{"name":"\xff"}}', "application/json", 400),
        ('{"agent":{"name":"echo"}}'.encode("utf-16"), "application/json", 400),
        (b'{"agent":{"name":"echo"},"x":NaN}', "application/json", 400),
        (b'{"agent":{"name":"echo"},"x":-Infinity}', "application/json", 400),
        (b"[]", "application/json", 422),
        (b'"agent"', "application/json", 422),
        (b"null", "application/json", 422),
        (b"17", "application/json", 422),
        (b"{}", "application/json", 422),
    ],
)
def test_an_unreadable_body_is_refused_by_what_is_wrong_with_it(
    alice: Client, content: bytes, content_type: str | None, status: int
) -> None:
    assert post_raw(alice, "/sessions", content, content_type) == status


@pytest.mark.rule("A4")
def test_an_encoded_body_is_415_and_identity_is_fine(alice: Client) -> None:
    body = b'{"agent":{"name":"echo"}}'
    assert post_raw(alice, "/sessions", body, **{"Content-Encoding": "gzip"}) == 415
    assert post_raw(alice, "/sessions", body, **{"Content-Encoding": "identity"}) == 201


@pytest.mark.rule("A5")
def test_a_content_type_without_a_body_is_ignored(alice: Client) -> None:
    session = alice.create()
    headers = {"Content-Type": "application/json"}
    for path in ("/meta", "/sessions", f"/sessions/{session}", f"/sessions/{session}/history?type=full"):
        assert alice.get(path, headers=headers).status_code == 200
    assert alice.post(f"/sessions/{session}/cancel", headers=headers).status_code == 200
    assert alice.request("DELETE", f"/sessions/{session}", headers=headers).status_code == 204


@pytest.mark.rule("A6")
def test_errors_in_the_body_have_json_pointers(alice: Client) -> None:
    response = alice.post("/sessions", {"agent": {"name": "echo"}, "messages": [user("a"), {"role": "user", "content": 7}]})
    assert response.status_code == 422
    assert "/messages/1/content" in pointers(response.json())


@pytest.mark.rule("A6")
def test_a_pointer_escapes_what_json_pointers_escape(alice: Client) -> None:
    response = alice.post("/sessions", {"agent": {"name": "pilot", "options": {"a/b~c": "x"}}})
    assert pointers(response.json()) == ["/agent/options/a~1b~0c"]


@pytest.mark.rule("A7")
def test_a_refused_turn_changes_nothing(alice: Client) -> None:
    session = alice.create("pilot", tools=[])
    before = alice.session(session)
    alice.refused(
        session,
        "hello",
        {"role": "user", "content": "twice"},
        agent={"options": {"tone": "loud"}, "tools": [{"name": "tide_table"}]},
        tools=[{"name": "mine", "description": "", "parameters": {}}],
    )
    alice.refused(session, "hello", agent={"options": {"tone": "loud", "units": "nautical"}})
    assert alice.session(session) == before
    assert alice.history(session) == []


@pytest.mark.rule("A7")
def test_a_refused_creation_makes_no_session(server: Server) -> None:
    somebody = server.new_tenant()
    refused = {
        "agent": {"name": "echo"},
        "messages": [user("ok"), {"role": "tool_permission", "toolCallId": "x", "granted": True}],
    }
    assert somebody.post("/sessions", refused).status_code == 422
    assert somebody.all_sessions() == []


@pytest.mark.rule("A8")
@pytest.mark.parametrize("accept", ["text/html", "text/event-stream", "image/png", "application/xml;q=0.1", "nonsense", "*/*"])
def test_the_accept_header_is_ignored(alice: Client, accept: str) -> None:
    headers = {"Accept": accept}
    assert alice.get("/meta", headers=headers).headers["Content-Type"].startswith("application/json")
    session = alice.create()
    json_form = alice.post(f"/sessions/{session}/turns", turn_body("hi"), headers=headers)
    assert json_form.headers["Content-Type"].startswith("application/json")
    sse_form = alice.post(f"/sessions/{session}/turns", turn_body("hi", stream="delta"), headers=headers)
    assert sse_form.headers["Content-Type"].startswith("text/event-stream")
    assert alice.post(f"/sessions/{session}/turns", {"messages": []}, headers=headers).status_code == 422


@pytest.mark.rule("A9")
def test_session_ids_are_url_safe_and_not_sequential(alice: Client) -> None:
    ids = {alice.create() for _ in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{16,128}", one) for one in ids)
    starts = {one[: len(one) // 2 + 6] for one in ids}
    assert len(starts) == 20


# --- unknown fields, characters, sizes ---


@pytest.mark.rule("A94")
def test_unknown_fields_and_null_are_ignored_at_every_level(alice: Client) -> None:
    session = alice.create(
        {"name": "pilot", "colour": "red", "options": None, "tools": [{"name": "tide_table", "why": 1, "trust": None}]},
        messages=[{"role": "user", "content": [{"type": "text", "text": "hi", "cache": {}}], "id": 7}],
        tools=None,
        stream="nonsense",
        more={"a": []},
    )
    config = alice.session(session)["agent"]
    assert set(config) == {"name", "tools"}
    assert config["tools"] in ([{"name": "tide_table"}], [{"name": "tide_table", "trust": False}])
    assert alice.history(session) == [user([{"type": "text", "text": "hi"}])]
    outcome = alice.turn(session, {**user("again"), "extra": True}, stream=None, agent=None, tools=None, x=[])
    assert outcome.stop == "end_turn"
    assert alice.history(session)[1] == user("again")


@pytest.mark.rule("A96")
@pytest.mark.parametrize("bad", ["\\u0000", "\\ud800", "\\udc00 \\ud800", "\\ud83d"])
@pytest.mark.parametrize(
    "body",
    [
        '{"agent":{"name":"echo"},"messages":[{"role":"user","content":"aBADb"}]}',
        '{"agent":{"name":"echo"},"messages":[{"role":"user","content":[{"type":"text","text":"BAD"}]}]}',
        '{"agent":{"name":"pilot","options":{"tone":"BAD"}}}',
        '{"agent":{"name":"pilot","options":{"model_key":"BAD"}}}',
        '{"agent":{"name":"BAD"}}',
        '{"agent":{"name":"echo"},"tools":[{"name":"t","description":"BAD","parameters":{}}]}',
        '{"agent":{"name":"echo"},"tools":[{"name":"t","description":"","parameters":{"title":"BAD"}}]}',
        '{"agent":{"name":"echo"},"tools":[{"name":"t","description":"","parameters":{"BAD":1}}]}',
        '{"agent":{"name":"echo"},"unknown":"BAD"}',
    ],
)
def test_characters_that_cannot_be_stored_are_422(alice: Client, bad: str, body: str) -> None:
    assert post_raw(alice, "/sessions", body.replace("BAD", bad).encode()) == 422


@pytest.mark.rule("A96")
def test_characters_that_cannot_be_stored_are_replaced_when_a_model_says_them(alice: Client, model: ModelServer) -> None:
    chunk = (
        '{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a\\u0000b\\ud800c"},"finish_reason":null}]}'
    )
    prompt = model.script([steps.raw(f"data: {chunk}\n\n".encode()), steps.text("!")])
    session = alice.create()
    assert alice.turn(session, prompt, stream="delta").text == "a\ufffdb\ufffdc!"
    assert alice.history(session)[-1]["content"] == "a\ufffdb\ufffdc!"


@pytest.mark.rule("A96")
def test_characters_that_cannot_be_stored_are_replaced_when_a_tool_says_them(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("unprintable")], [steps.text("seen")])
    session = alice.create({"name": "pilot", "tools": [{"name": "unprintable", "trust": True}]})
    outcome = alice.turn(session, prompt)
    assert list(outcome.results.values()) == ["nul \ufffd and half \ufffd a pair"]


@pytest.mark.rule("A93")
def test_a_body_over_the_limit_is_413_by_its_length_alone(server: Server) -> None:
    head = (
        f"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.keys.alice}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {16 * MIB + 1}\r\n\r\n"
    )
    assert exchange(server, head.encode()).startswith(b"HTTP/1.1 413")


@pytest.mark.rule("A93")
def test_a_body_over_the_limit_is_413_also_without_a_length(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"agent":{"name":"echo"},"x":"'
        for _ in range(17):
            yield b"x" * MIB
        yield b'"}'

    head = (
        f"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.keys.alice}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=90) as connection:
        # The answer may come, and the connection be closed, while the body is still being sent.
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode())
            for piece in pieces():
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.sendall(b"0\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 413
        assert response.headers["Content-Type"] == "application/problem+json"
        assert json.loads(response.read())["status"] == 413


@pytest.mark.rule("A93")
def test_a_body_just_under_the_limit_is_accepted_and_stored_completely(alice: Client) -> None:
    text = "é" * (7 * MIB)
    session = alice.create(messages=[user(text)])
    assert alice.history(session) == [user(text)]


@pytest.mark.rule("A93", "A37")
def test_a_seed_of_ten_thousand_messages_is_accepted(alice: Client) -> None:
    seed = [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(10_000)]
    session = alice.create(messages=seed)
    assert alice.history(session) == seed


@pytest.mark.rule("A93")
@pytest.mark.parametrize(("depth", "status"), [(80, 201), (130, 422), (5_000, 422), (500_000, 422)])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")])
def test_json_nested_too_deep_is_422(alice: Client, depth: int, status: int, left: str, right: str) -> None:
    inner = left * depth + ("1" if left != "[" else "") + right * depth
    body = f'{{"agent":{{"name":"echo"}},"tools":[{{"name":"t","description":"","parameters":{{"x":{inner}}}}}]}}'
    assert post_raw(alice, "/sessions", body.encode()) == status


# --- headers ---


@pytest.mark.rule("A95")
@pytest.mark.parametrize("path", ["/meta", "/sessions", "/sessions/sess_x/turns", "/sessions/sess_x/events/stream", "/nope"])
def test_a_browsers_preflight_is_answered_without_a_key(server: Server, path: str) -> None:
    headers = {
        "Origin": "https://playground.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    response = server.client(None).http.options(path, headers=headers)
    assert response.status_code in (200, 204)
    assert response.headers["Access-Control-Allow-Origin"] in ("*", "https://playground.example")
    methods = {one.strip() for one in response.headers["Access-Control-Allow-Methods"].split(",")}
    assert {"GET", "POST", "PUT", "DELETE", "OPTIONS"} <= methods
    allowed = {one.strip().lower() for one in response.headers["Access-Control-Allow-Headers"].split(",")}
    wanted = "Authorization Content-Type Accept Idempotency-Key Last-Event-ID X-Request-Id X-Turn-Deadline"
    assert set(wanted.lower().split()) <= allowed
    assert int(response.headers["Access-Control-Max-Age"]) > 0
    assert "Access-Control-Allow-Credentials" not in response.headers


@pytest.mark.rule("A95")
def test_every_answer_to_a_browser_may_be_read_by_it(server: Server, alice: Client) -> None:
    session = alice.create()
    origin = {"Origin": "https://playground.example"}
    answers = [
        alice.get("/meta", headers=origin),
        alice.get("/nope", headers=origin),
        alice.request("PATCH", "/meta", headers=origin),
        alice.get("/sessions/none", headers=origin),
        alice.http.post("/sessions", content=b"{", headers={**origin, "Content-Type": "application/json"}),
        alice.http.post("/sessions", content=b"{}", headers={**origin, "Content-Type": "text/plain"}),
        alice.post(f"/sessions/{session}/turns", turn_body("x", stream="delta"), headers=origin),
        alice.post(f"/sessions/{session}/turns", turn_body("x"), headers=origin),
        server.client(None).get("/meta", headers=origin),
    ]
    for answer in answers:
        assert answer.headers["Access-Control-Allow-Origin"] in ("*", "https://playground.example"), answer.status_code
        exposed = {one.strip().lower() for one in answer.headers["Access-Control-Expose-Headers"].split(",")}
        assert {"retry-after", "location", "x-request-id", "x-turn-id"} <= exposed
    head = b"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\nContent-Length: 99999999\r\n\r\n"
    assert b"access-control-allow-origin" in exchange(server, head).lower()


@pytest.mark.rule("A122")
def test_a_creation_says_where_the_session_is(alice: Client) -> None:
    response = alice.post("/sessions", {"agent": {"name": "echo"}})
    location = httpx.URL(alice.origin).join(response.headers["Location"])
    assert location.path == f"/aap/v3/sessions/{response.json()['sessionId']}"
    assert alice.http.get(location).status_code == 200


@pytest.mark.rule("A122")
def test_every_answer_has_a_request_id_and_a_sane_one_of_the_client_is_kept(server: Server, alice: Client) -> None:
    mine = {"X-Request-Id": "my-request-17"}
    session = alice.create()
    for answer in (
        alice.get("/meta", headers=mine),
        alice.get("/nope", headers=mine),
        server.client(None).get("/meta", headers=mine),
        alice.post(f"/sessions/{session}/turns", turn_body("x", stream="message"), headers=mine),
        alice.post(f"/sessions/{session}/turns", {"messages": []}, headers=mine),
        alice.http.post("/sessions", content=b"{}", headers={**mine, "Content-Type": "text/plain"}),
    ):
        assert answer.headers["X-Request-Id"] == "my-request-17"
        if answer.status_code >= 400:
            assert "my-request-17" in answer.json()["instance"]
    first, second = alice.get("/meta"), alice.get("/meta")
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    odd = alice.get("/meta", headers={"X-Request-Id": "x" * 5000 + "<script>"})
    assert "<" not in odd.headers["X-Request-Id"]


@pytest.mark.rule("A122")
def test_a_turn_has_the_same_turn_id_after_it_was_resumed(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine")], [steps.text("done")])
    session = alice.create(tools=[{"name": "mine", "description": "", "parameters": {"type": "object"}}])
    first = alice.turn(session, prompt)
    second = alice.turn(session, {"role": "tool", "toolCallId": first.calls[0]["toolCallId"], "content": "x"}, stream="delta")
    third = alice.turn(session, "another")
    assert first.turn_id == second.turn_id != third.turn_id


@pytest.mark.rule("A6")
def test_status_in_problem_documents_equals_the_status_line(alice: Client) -> None:
    problem = alice.get("/sessions/none").json()
    assert problem["status"] == 404
    assert json.dumps(problem).count("Traceback") == 0
