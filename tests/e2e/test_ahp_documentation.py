"""The program in docs/protocols/ahp.md runs as printed there."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

from tests.e2e.ahp_watcher import watching
from tests.e2e.server import Server
from tests.paths import ROOT

PAGE = ROOT / "docs" / "protocols" / "ahp.md"


async def test_the_program_on_the_page_makes_a_session_and_prints_its_turn(server: Server) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    program = found[1].replace("ws://127.0.0.1:8000", server.origin().replace("http", "ws")).replace("ah_…", server.keys.alice)
    program = program.replace("demo", "echo")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    async with watching(server, server.keys.alice) as client:
        assert '"turnId":"t1"' in await asyncio.to_thread(_until_complete, program, environment)
        await client.request("disposeSession", {"session": "echo:/first"})


def _until_complete(program: str, environment: dict[str, str]) -> str:
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            return next(line for line in running.stdout if "session/turnComplete" in line)
        finally:
            running.kill()
