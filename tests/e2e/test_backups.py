"""A server is backed up while turns run, and restored into a new database: what clients get is what they got."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ops.services import postgres_programs
from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session, run_turn
from tests.e2e.ahp_watcher import Watcher, url_of, watching
from tests.e2e.client import Client, grant
from tests.e2e.server import Server
from tests.fakes import pictures, steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

OWN_KEY = "sk-of-this-session-77ae"


def manage(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, env=dict(environment), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def operator(server: Server) -> dict[str, str]:
    """The environment of an operator: the role that owns the tables, and Postgres' programs."""
    found = {**server.environment, **server.owner, "DJANGO_SETTINGS_MODULE": "agenthost.settings"}
    if server.shape == "production":
        found["PATH"] = f"{postgres_programs()}{os.pathsep}{found['PATH']}"
    return found


@contextlib.contextmanager
def empty_copy(server: Server, directory: Path) -> Iterator[Server]:
    """An installation with the same keys and agents, and an empty database and volume; no process runs."""
    directory.mkdir()
    environment = {
        **server.environment,
        "AGENTHOST_VAR_DIR": str(directory / "var"),
        "AGENTHOST_WORKSPACES_DIR": str(directory / "workspaces"),
    }
    copy = Server(server.shape, directory, environment, server.tools, server.keys, preloaded=server.preloaded)
    with contextlib.ExitStack() as stack:
        if server.shape == "production":
            given, role = os.environ["DATABASE_URL"], server.owner["AGENTHOST_RUNTIME_ROLE"]
            url = stack.enter_context(servers.own_database(given, "template0"))
            stack.enter_context(servers.own_redis(copy))
            assert copy.redis is not None
            copy.owner = {"DATABASE_URL": url, "AGENTHOST_RUNTIME_ROLE": role}
            copy.environment |= {"DATABASE_URL": servers.as_role(url, role), "REDIS_URL": copy.redis.url()}
        else:
            (directory / "var").mkdir(mode=0o700)
            for name in ("secret_key", "key_ring"):
                shutil.copy(Path(server.environment["AGENTHOST_VAR_DIR"]) / name, directory / "var" / name)
        stack.callback(copy.close)
        yield copy


def answers(client: Client, sessions: Mapping[str, str]) -> dict[str, Any]:
    """All that an application can read of these sessions."""
    found: dict[str, Any] = {}
    for name, session in sessions.items():
        found[name] = [client.session(session), client.history(session), client.history(session, "compacted")]
    return found


def fill_workspace(server: Server, session: str, directory: Path) -> None:
    archive = directory / "files.tar"
    with tarfile.open(archive, "w") as tar:
        for name, text, mode in (("notes.txt", b"by the sea", 0o640), ("bin/run.sh", b"#!/bin/sh\n", 0o755)):
            header = tarfile.TarInfo(name)
            header.size, header.mode = len(text), mode
            tar.addfile(header, io.BytesIO(text))
        link = tarfile.TarInfo("latest")
        link.type, link.linkname = tarfile.SYMTYPE, "notes.txt"
        tar.addfile(link)
    done = manage(operator(server), "import_workspace", "alice", f"file:///sessions/{session}", str(archive))
    assert done.returncode == 0, done.stderr


def exported(server: Server, session: str) -> list[Any]:
    """The session's export, without the lines about the export itself."""
    done = manage(operator(server), "export_session", "alice", session)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[1:-1]


@pytest.mark.parametrize("shape", [pytest.param("embedded", marks=pytest.mark.slow), "production"])
async def test_a_busy_server_is_restored_as_it_was(shape: str, tmp_path: Path, model: ModelServer) -> None:
    if shape not in servers.shapes():
        pytest.skip("production needs Postgres: run ops/test")
    backup = tmp_path / "backups" / "first"
    with servers.running(shape, tmp_path / "old", model.url) as server:
        alice = server.alice
        sessions = {
            "calls": alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]}),
            "secret": alice.create({"name": "pilot", "options": {"model_key": OWN_KEY}}),
            "image": alice.create("echo"),
            "waiting": alice.create({"name": "pilot", "tools": [{"name": "order_rope"}]}),
        }
        alice.turn(
            sessions["calls"], model.script([steps.call("tide_table", {"harbour": "Oslo"}, id="c1")], [steps.text("high")])
        )
        alice.turn(sessions["secret"], model.script([steps.text("sealed")]))
        picture = {"type": "image", "url": pictures.data_url(pictures.png(8, 8))}
        prompt = model.script([steps.text("a picture")])
        alice.turn(sessions["image"], {"role": "user", "content": [{"type": "text", "text": prompt}, picture]})
        order = model.script([steps.call("order_rope", {"metres": 41}, id="g1")], [steps.text("ordered")])
        assert alice.turn(sessions["waiting"], order).stop != "end_turn"
        fill_workspace(server, sessions["calls"], tmp_path)
        before = answers(alice, sessions)
        export = exported(server, sessions["calls"])

        busy = alice.create("echo")
        prompt = model.script([steps.text("half of "), steps.gate("busy"), steps.text("it")])
        async with watching(server, server.keys.alice, "watcher") as watcher:
            uri = await create_session(watcher)
            await run_turn(watcher, uri, model.script([steps.text("seen")]))
            seen = watcher.state(uri)["turns"]
            with alice.stream(busy, prompt) as stream:
                stream.until("text_delta")
                # In a thread: the watcher answers pings meanwhile.
                done = await asyncio.to_thread(manage, operator(server), "backup", str(backup))
                assert done.returncode == 0, done.stderr
                model.open_gate("busy")
                lost = stream.rest()[-1]
            # Clients go on, beyond what the backup knows.
            for _ in range(3):
                await run_turn(watcher, uri, model.script([steps.text("lost")]))
            position = watcher.last_seq
        server.stop()
        assert {path.stat().st_mode & 0o077 for path in [backup, *backup.rglob("*")]} == {0}
        assert OWN_KEY.encode() not in (backup / "manifest.json").read_bytes()

        with empty_copy(server, tmp_path / "new") as copy:
            refused = manage({**operator(copy), **other_keys(copy)}, "restore", str(backup))
            assert refused.returncode == 1
            assert "AGENTHOST_KEY_RING lacks the keys" in refused.stderr
            fail_halfway(copy, backup)
            done = manage(operator(copy), "restore", str(backup))
            assert done.returncode == 0, done.stdout + done.stderr
            assert "1 turns that were queued or running have ended as interrupted, 1 wait" in done.stdout
            again = manage(operator(copy), "restore", str(backup))
            assert "The database is not empty" in again.stderr
            if shape == "production":
                migrated = manage(operator(copy), "migrate")
                assert migrated.returncode == 0, migrated.stderr
            copy.start()
            check_restored(copy, sessions, before, export, busy, lost.id, model)
            await check_reconnect(copy, position, uri, seen)


async def check_reconnect(copy: Server, position: int, uri: str, seen: list[Any]) -> None:
    """A client that knows more than the backup gets the session as the backup has it."""
    back = Watcher(url_of(copy), copy.keys.alice, "watcher")
    await back.open()
    answer = await back.request("reconnect", {"clientId": "watcher", "lastSeenServerSeq": position, "subscriptions": [uri]})
    await back.close()
    assert answer["type"] == "snapshot"
    (snapshot,) = answer["snapshots"]
    assert snapshot["fromSeq"] > position
    assert snapshot["state"]["turns"] == seen


def fail_halfway(copy: Server, backup: Path) -> None:
    """The volume takes no files: the database is loaded, and nothing starts on it until the same command has finished."""
    volume = Path(copy.environment["AGENTHOST_WORKSPACES_DIR"])
    volume.mkdir()
    (tenant,) = (backup / "workspaces").iterdir()
    (volume / tenant.name).write_text("in the way")
    failed = manage(operator(copy), "restore", str(backup))
    assert failed.returncode == 1, failed.stdout
    checked = manage(operator(copy), "doctor")
    assert "the restore is not complete. Run the same restore again" in checked.stdout
    (volume / tenant.name).unlink()


def other_keys(copy: Server) -> dict[str, str]:
    return {"AGENTHOST_KEY_RING": base64.b64encode(os.urandom(32)).decode()}


def check_restored(
    copy: Server,
    sessions: Mapping[str, str],
    before: Mapping[str, Any],
    export: list[Any],
    busy: str,
    lost: str,
    model: ModelServer,
) -> None:
    alice = copy.alice
    assert answers(alice, sessions) == before
    assert exported(copy, sessions["calls"]) == export
    (tree,) = Path(copy.environment["AGENTHOST_WORKSPACES_DIR"]).glob("*/ws_*/tree")
    assert (tree / "latest").readlink() == Path("notes.txt")
    assert [(tree / name).stat().st_mode & 0o777 for name in ("notes.txt", "bin/run.sh")] == [0o640, 0o755]
    # What the run had shown by then is kept, and its end has a reason.
    assert [message["role"] for message in alice.history(busy)] == ["user", "assistant"]
    assert alice.history(busy)[1]["content"] == "half of "
    # A position of an event that the backup does not have: never a wrong continuation.
    answer = alice.get(f"/sessions/{busy}/events/stream", params={"stream": "delta"}, headers={"Last-Event-ID": lost})
    assert answer.status_code == 410
    prompt = model.script([steps.text("unsealed")])
    assert alice.turn(sessions["secret"], prompt).text == "unsealed"
    assert model.wait_request(prompt).headers["authorization"] == f"Bearer {OWN_KEY}"
    new = alice.turn(busy, model.script([steps.text("again")]), stream="delta")
    assert new.text == "again"
    assert all(event.id[:16] > lost[:16] for event in new.events)
    granted = alice.turn(sessions["waiting"], grant("g1"))
    assert (granted.stop, granted.text) == ("end_turn", "ordered")


class Load:
    """Clients that create sessions and run turns until they are told to stop."""

    def __init__(self, server: Server, model: ModelServer, clients: int) -> None:
        self.sessions: list[str] = []
        self._server, self._model = server, model
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        self.failures: list[BaseException] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self) -> None:
        try:
            with contextlib.closing(Client(self._server.origin(), self._server.keys.alice)) as client:
                while not self._ended.is_set():
                    session = client.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
                    for _ in range(3):
                        slowly = [step for number in range(30) for step in (steps.text(f"{number} "), steps.pause(0.01))]
                        calling = [steps.call("tide_table", {"harbour": "Bree"})]
                        prompt = self._model.script(calling, slowly)
                        assert client.turn(session, prompt).stop == "end_turn"
                    self.sessions.append(session)
        except BaseException as error:
            self.failures.append(error)

    def wait(self, count: int) -> int:
        """Wait until so many more sessions are complete; returns how many are."""
        reached = len(self.sessions) + count
        for _ in range(2400):
            if len(self.sessions) >= reached or self.failures:
                break
            self._ended.wait(0.05)
        assert not self.failures, self.failures
        assert len(self.sessions) >= reached
        return len(self.sessions)


def is_begin_of(restored: list[Any], final: list[Any]) -> bool:
    """Whether a history is the other one as of an earlier moment: the last answer may lack its end, and a call its result."""
    *whole, last = restored or [None]
    if whole != final[: len(whole)] or last is None:
        return not restored
    later = final[len(whole)]
    if last == later:
        return True
    texts = (last["content"], later["content"])
    if last["role"] == later["role"] == "tool":
        # A tool that was running: its result says that it was interrupted.
        return True
    if last["role"] == later["role"] and all(isinstance(text, str) for text in texts):
        return bool(texts[1].startswith(texts[0]))
    return False


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["embedded", "production"])
def test_under_load_every_session_is_restored_as_of_one_moment(shape: str, tmp_path: Path, model: ModelServer) -> None:
    if shape not in servers.shapes():
        pytest.skip("production needs Postgres: run ops/test")
    backup = tmp_path / "backup"
    with servers.running(shape, tmp_path / "old", model.url) as server:
        with Load(server, model, clients=4) as load:
            known = load.wait(8)
            done = manage(operator(server), "backup", str(backup))
            assert done.returncode == 0, done.stderr
            load.wait(4)
        alice = server.alice
        finals = {each["sessionId"]: alice.history(each["sessionId"]) for each in alice.all_sessions()}
        finished = load.sessions[:known]
        server.stop()
        with empty_copy(server, tmp_path / "new") as copy:
            done = manage(operator(copy), "restore", str(backup))
            assert done.returncode == 0, done.stdout + done.stderr
            if shape == "production":
                assert manage(operator(copy), "migrate").returncode == 0
            copy.start()
            alice = copy.alice
            found = {each["sessionId"]: alice.history(each["sessionId"]) for each in alice.all_sessions()}
            assert set(finished) <= set(found) <= set(finals)
            assert {each: found[each] for each in finished} == {each: finals[each] for each in finished}
            strange = [each for each in found if not is_begin_of(found[each], finals[each])]
            assert [(found[each][-3:], finals[each][: len(found[each])][-3:]) for each in strange] == []
            for session in found:
                assert alice.turn(session, model.script([steps.text("on")])).text == "on"
