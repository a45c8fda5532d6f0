"""A second installation with workspaces and, if a sandbox can be made, a terminal service."""

from __future__ import annotations

import asyncio

from ops import services
from ops.benchmark.installation import Installation, Shape, installed
from ops.benchmark.setting import Bench, models, warm_up
from sessions_app.workspace import sandbox

_SETTINGS = {
    "AGENTHOST_TERMINALS": "on",
    # The limits of tenants and services are not what is measured.
    "AGENTHOST_TENANT_TERMINALS": "1000",
    "AGENTHOST_TERMINAL_CONCURRENCY": "1000",
    "AGENTHOST_TERMINAL_BYTES_PER_SECOND": str(1 << 30),
}


async def with_workspaces(bench: Bench) -> Bench | None:
    """The installation with workspaces, reused by all rows and runs; None if the release has none, with a line that says so."""
    if "workspaces" not in bench.kept:
        installation = await asyncio.to_thread(_start, bench)
        there = Bench(bench.size, bench.home, installation, bench.model_port, bench.stack, bench.say, bench.root)
        bench.kept["workspaces"] = there
        if installation.reports("workspaces") != "up":
            bench.say("the rows about terminals and files are left out: this release has no workspaces")
            bench.kept["workspaces"] = None
        else:
            await warm_up(there)
    kept: Bench | None = bench.kept["workspaces"]
    return kept


async def with_terminals(bench: Bench) -> Bench | None:
    """The same, with a terminal service that has just been started; None if it cannot run here, with one line that says so."""
    if bench.kept.get("no terminals"):
        return None
    if reason := await asyncio.to_thread(sandbox.check):
        _leave_out(bench, reason)
        return None
    there = await with_workspaces(bench)
    if there is None:
        return None
    await asyncio.to_thread(there.installation.stop_terminals)
    if not await asyncio.to_thread(there.installation.start_terminals):
        _leave_out(bench, "this release has none")
        return None
    return there


def _leave_out(bench: Bench, reason: str) -> None:
    bench.kept["no terminals"] = True
    bench.say(f"the rows about terminals are left out: {reason}")


def _start(bench: Bench) -> Installation:
    home = bench.home / "workspaces"
    (home / "volume").mkdir(mode=0o711, parents=True)
    home.chmod(0o711)
    shape = Shape(bench.root, settings={**_SETTINGS, "AGENTHOST_WORKSPACES_DIR": str(home / "volume")})
    postgres = services.Postgres(home, crash_safe=True)
    return bench.stack.enter_context(installed(home, bench.model_port, models(bench.size), shape, postgres))
