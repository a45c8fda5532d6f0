"""Several hosts: each mounts the volume of the workspaces where it likes, and one that does not mount it says so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session, start_turn, wait_for_end
from tests.e2e.ahp_watcher import watching
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("production" not in servers.shapes(), reason="several webs need Postgres"),
]


def reported(server: Server, index: int) -> str:
    """What this web reports of its workspaces; it is ready in any case."""
    answer = httpx.get(f"{server.origin(index)}/readyz", trust_env=False, timeout=60)
    assert answer.status_code == 200
    found: str = answer.json()["workspaces"]
    return found


@pytest.mark.rule("R330", "R331", "R28")
def test_webs_share_files_at_different_mount_points_and_one_without_the_volume_names_the_reason(
    tmp_path: Path, model: ModelServer
) -> None:
    with servers.running("production", tmp_path / "server", model.url) as one:
        assert reported(one, 0) == "up"
        (tmp_path / "mounted elsewhere").symlink_to(one.environment["AGENTHOST_WORKSPACES_DIR"])
        (tmp_path / "not mounted").mkdir()
        for index, place in ((1, "mounted elsewhere"), (2, "not mounted")):
            one.environment["AGENTHOST_WORKSPACES_DIR"] = str(tmp_path / place)
            one.start_web()
            one.wait_ready(index)
        message = asyncio.run(use_all(one, model.script([steps.text("Aye.")])))
        assert "workspaces" in message
        assert str(tmp_path) not in message
        assert [reported(one, index) for index in (0, 1)] == ["up", "up"]
        assert "the volume of this database is not mounted" in reported(one, 2)
        assert list((tmp_path / "not mounted").iterdir()) == []
        environment = {**one.environment, "DJANGO_SETTINGS_MODULE": "agenthost.settings"}
        command = [sys.executable, "manage.py", "doctor"]
        doctor = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
        assert doctor.returncode != 0
        assert "the volume of this database is not mounted" in doctor.stdout


async def use_all(one: Server, script: str) -> str:
    """Use files through the first two webs, and a session through the third; returns its error for a file."""
    alice = one.keys.alice
    async with (
        watching(one, alice, "first") as first,
        watching(one, alice, "second", index=1) as second,
        watching(one, alice, "third", index=2) as third,
    ):
        uri = await create_session(first, workingDirectory="file:///harbour")
        file = {"uri": "file:///harbour/a.txt"}
        await first.request("resourceWrite", {**file, "data": "from the first", "encoding": "utf-8"})
        assert (await second.request("resourceRead", file))["data"] == "from the first"
        await second.request("resourceWrite", {**file, "data": "from the second", "encoding": "utf-8"})
        assert (await first.request("resourceRead", file))["data"] == "from the second"
        with pytest.raises(RPCError) as refused:
            await third.request("resourceRead", file)
        assert refused.value.code == -32603
        # Everything but files works there.
        await third.subscribe(uri)
        turn = await start_turn(third, uri, script)
        assert (await wait_for_end(third, uri, turn))["state"] == "complete"
    return refused.value.message
