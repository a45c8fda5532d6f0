"""``manage.py runserver`` serves both protocols in one process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session, run_turn, text_of
from tests.e2e.ahp_watcher import watching
from tests.e2e.server import START_SECONDS, Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT as CHECKOUT


@pytest.fixture
def developing(tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    """An installation whose server is daphne's."""
    with servers.running("embedded", tmp_path, model.url) as server:
        server.stop()
        command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{server.ports[0]}"]
        with (tmp_path / "runserver.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=server.environment,
                cwd=CHECKOUT,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            _wait_ready(server, process)
            yield server
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(30) in (0, -signal.SIGINT), "it ends when it is told to"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, server.log_text()[-4000:]
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(server.origin() + "/readyz", timeout=20, trust_env=False, verify=False).status_code == 200:
                return
        assert time.monotonic() < until, server.log_text()[-4000:]
        time.sleep(0.05)


async def test_a_turn_of_each_protocol_runs_under_the_development_server(developing: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("high ", "water")])
    alice = developing.alice
    session = await asyncio.to_thread(alice.create)
    turn = await asyncio.to_thread(alice.turn, session, prompt, stream="delta")
    assert (turn.text, turn.stop) == ("high water", "end_turn")
    again = model.script([steps.text("low ", "water")])
    async with watching(developing, developing.keys.alice) as client:
        assert "echo" in [each["provider"] for each in client.state(ROOT)["agents"]]
        uri = await create_session(client)
        assert text_of(await run_turn(client, uri, again)) == "low water"
        # What came over the other protocol is here too.
        over_aap = f"echo:/{session}"
        state = await client.subscribe(over_aap)
        assert text_of(state["turns"][0]) == "high water"
        for each in (uri, over_aap, ROOT):
            await client.check(each)
    with pytest.raises(InvalidStatus) as refused:
        async with watching(developing, "ah_nobody"):
            pass
    # Daphne cannot refuse an upgrade with a status of ours.
    assert refused.value.response.status_code == 403
