"""Secrets do not appear in responses, logs, the database or Redis."""

from __future__ import annotations

import base64
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.client import Client, turn_body, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SECRET = "sk-canary-of-a-client-9d21"
CONTENT = "canary-words-of-a-user-5c3e"


def disguises(secret: str) -> list[bytes]:
    """The secret as it is, and as careless code would hide it."""
    plain = secret.encode()
    return [plain, base64.b64encode(plain)[:-4], plain.hex().encode(), plain[::-1]]


def found_in(haystack: bytes, secrets: list[str]) -> list[str]:
    return [secret for secret in secrets if any(form in haystack for form in disguises(secret))]


def answers(client: Client, session: str, prompt: str) -> bytes:
    """All responses about the session, including headers."""
    paths = ("/meta", "/sessions", f"/sessions/{session}", f"/sessions/{session}/history?type=full", "/nope")
    got = [client.get(path) for path in paths]
    options = {"model_key": SECRET, "units": "wrong"}
    bad: list[object] = [
        {"messages": [], "agent": {"options": options}},
        {"messages": [user("x")], "agent": {"options": {"model_key": [SECRET]}}},
        {"messages": [user("x")], "agent": {"options": {SECRET: "x"}}},
        turn_body(prompt, agent={"options": options}),
    ]
    got += [client.post(f"/sessions/{session}/turns", body) for body in bad[:2]]
    got.append(client.post("/sessions", {"agent": {"name": "pilot", "options": options}}))
    got.append(client.post(f"/sessions/{session}/turns", turn_body(prompt, agent={"options": {"model_key": SECRET}})))
    got.append(client.post(f"/sessions/{session}/turns", turn_body(prompt, stream="delta")))
    return b"".join(str(one.headers).encode() + one.content for one in got)


def stored(server: Server) -> bytes:
    """Every value in every table."""
    if server.shape == "embedded":
        found = [path.read_bytes() for path in Path(server.environment["AGENTHOST_VAR_DIR"]).rglob("*.sqlite3*")]
        with sqlite3.connect(f"file:{server.environment['AGENTHOST_VAR_DIR']}/agenthost.sqlite3?mode=ro", uri=True) as connection:
            for (table,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall():
                for row in connection.execute(f'select * from "{table}"').fetchall():
                    found += [value if isinstance(value, bytes) else str(value).encode() for value in row]
        connection.close()
        return b"\0".join(found)
    found = []
    with server.database() as postgres:
        tables = postgres.execute("select quote_ident(tablename) from pg_tables where schemaname = 'public'").fetchall()
        for (table,) in tables:
            for row in postgres.execute(f"select * from {table}").fetchall():
                found += [bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode() for value in row]
    return b"\0".join(found)


@pytest.mark.rule("A30", "A22", "A84", "A6")
def test_secrets_are_only_sent_to_the_provider(server: Server, model: ModelServer, capfd: pytest.CaptureFixture[str]) -> None:
    key = server.make_keys(f"hunted{id(model)}/all/*/")[0]
    client = server.client(key)
    secrets = [SECRET, agents_file.DEFAULT_KEY, agents_file.HEADER_SECRET, key]
    heard: list[bytes] = []
    listener = listen(server, heard)
    prompt = model.script([steps.status(401, message=f"bad key {SECRET}")], name=CONTENT)
    session = client.create({"name": "pilot", "options": {"model_key": SECRET}})
    said = answers(client, session, prompt)
    fine = model.script([steps.text("ok")])
    client.turn(session, fine)
    assert model.requests_of(fine)[0].api_key == SECRET
    client.turn(session, fine, agent={"options": {"model_key": ""}})
    assert model.requests_of(fine)[1].api_key == agents_file.DEFAULT_KEY
    assert found_in(said, secrets) == []
    assert found_in(server.log_text().encode(), [*secrets, CONTENT]) == []
    assert found_in(stored(server), secrets) == []
    if listener is not None:
        listener()
        assert heard, "nothing went through Redis at all"
        assert found_in(b"\n".join(heard), secrets) == []


def listen(server: Server, heard: list[bytes]) -> Callable[[], None] | None:
    """Collect every command that Redis gets; the returned function stops it. None where there is no Redis."""
    if server.redis is None:
        return None
    address = urlsplit(server.redis.url())
    connection = socket.create_connection(("127.0.0.1", address.port or 6379))
    connection.sendall(f"AUTH {address.password}\r\nMONITOR\r\n".encode())
    connection.settimeout(0.2)
    stopped = threading.Event()

    def collect() -> None:
        while True:
            try:
                got = connection.recv(1 << 16)
            except TimeoutError:
                # What came before the end is heard out.
                if stopped.is_set():
                    return
                continue
            if not got:
                return
            heard.append(got)

    thread = threading.Thread(target=collect)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join(60)
        connection.close()

    return stop


def test_content_is_never_logged(server: Server, alice: Client, model: ModelServer) -> None:
    words = "words-that-no-log-may-hold-7b1d"
    prompt = model.script(
        [steps.text(words), steps.call("fail", {"reason": words}), steps.call("unknown", {"w": words})],
        [steps.error_object(words)],
        name=words,
    )
    session = alice.create({"name": "pilot", "tools": [{"name": "fail", "trust": True}]}, messages=[user(words)])
    alice.turn(session, prompt)
    alice.post("/sessions", {"agent": {"name": words}, "messages": [{"role": words}]})
    alice.get(f"/sessions/{words}", params={"type": words, "after": words})
    assert server.shape in servers.shapes()
    lines = [line for line in server.log_text().splitlines() if words in line]
    # Access logs may contain request paths, but no content.
    assert [line for line in lines if "GET /aap" not in line] == []
