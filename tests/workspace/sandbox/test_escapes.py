"""Attempts to leave a box: one run of `attacks.py` inside a box, one test for each attempt."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from sessions_app.workspace import sandbox
from sessions_app.workspace.limits import MIB, Limits
from sessions_app.workspace.process import run_piped
from sessions_app.workspace.pty import start
from tests.workspace.sandbox import attacks
from tests.workspace.sandbox.conftest import box_in, status_of

LIMITS = Limits(
    memory_bytes=256 * MIB, processes=30, file_bytes=64 * MIB, open_files=200, temporary_bytes=4 * MIB, disk_bytes=256 * MIB
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("the attempts need a Python in /usr, which boxes see; Debian, Ubuntu: apt-get install python3")
    directory = tmp_path_factory.mktemp("escapes")
    box = box_in(directory, LIMITS)
    shutil.copy(attacks.__file__, box.tree / "attacks.py")
    secret = directory / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    other = directory / "other" / "tree" / "file"
    other.parent.mkdir(parents=True)
    other.write_text("another tenant's")
    abstract = f"agenthost-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as unnamed,
        pytest.MonkeyPatch.context() as patch,
    ):
        named.bind(str(directory / "socket"))
        named.listen()
        unnamed.bind("\0" + abstract)
        unnamed.listen()
        patch.setenv("AGENTHOST_SECRET", "SECRET")
        inherited = os.open(secret, os.O_RDONLY)
        os.set_inheritable(inherited, True)  # noqa: FBT003
        facts = {
            "secret": str(secret),
            "other": str(other),
            "directory": str(directory),
            "mounted_at": box.mounted_at,
            "server": os.getpid(),
            "port": listener.getsockname()[1],
            "unix": str(directory / "socket"),
            "abstract": abstract,
            **dataclasses.asdict(LIMITS),
        }
        try:
            (box.tree / "facts.json").write_text(json.dumps(facts))
            finished = asyncio.run(run_piped(box, [python, "-I", "attacks.py"], {"GIVEN": "x"}))
        finally:
            os.close(inherited)
    assert finished.exit_code == 0, finished
    outcomes: dict[str, str] = json.loads(finished.output)
    return outcomes


@pytest.mark.parametrize("name", sorted(attacks.ATTEMPTS))
def test_an_attempt_to_leave_the_box_is_refused(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "refused"


def test_the_outer_identity_of_a_box_is_not_root(tmp_path: Path) -> None:
    """A user namespace made by root could write what belongs to root and is in no namespace."""
    box = box_in(tmp_path)

    async def outer_status() -> dict[str, str]:
        process = await start(box, ["/bin/cat"], {})
        try:
            return status_of(process.pid)
        finally:
            await process.close()

    status = asyncio.run(outer_status())
    expected = str((sandbox.owner() or (os.getuid(), 0))[0])
    assert set(status["Uid"].split()) == {expected}
    assert expected != "0"
    assert status["Groups"].split() in ([], [expected]) or os.getuid() != 0
