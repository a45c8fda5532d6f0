"""Rows about terminals: keystrokes, output, idle terminals. The floor is the pseudo-terminal of a sandbox without the server."""

from __future__ import annotations

import asyncio
import os
import secrets
import string
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from ops.benchmark import processes
from ops.benchmark.ahp import AhpClient
from ops.benchmark.figures import Figure, percentile
from ops.benchmark.installation import STORES
from ops.benchmark.setting import Bench, Row, ms
from ops.benchmark.with_workspaces import with_terminals
from sessions_app.workspace import pty, sandbox
from sessions_app.workspace.sandbox import Box

_MEGA = 1e6
_PAUSE = 0.05
"""Seconds between an echo and the next keystroke."""
_FLOOD_SETTLES = 1.0
# Each sign is echoed by the program, not by the kernel, as in an editor or at a shell's prompt.
ECHOES = "stty raw -echo; echo rea''dy; exec cat"
_LINE = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"
PRINTS = f"exec yes {_LINE}"

Press = Callable[[str], Awaitable[None]]
"""Type one character and wait for its echo."""


async def echo_seconds(press: Press, count: int, pause: float = _PAUSE) -> list[float]:
    """The time from each keystroke to its echo. No two neighbours are the same character."""
    took = []
    for number in range(count):
        await asyncio.sleep(pause)
        began = time.monotonic()
        await press(string.ascii_letters[number % len(string.ascii_letters)])
        took.append(time.monotonic() - began)
    return took


def echo_figures(what: str, ours: list[float], floor: list[float]) -> list[Figure]:
    return [
        Figure(f"keystroke to echo {name}, {what}", "ms", ms(percentile(ours, share)), ms(percentile(floor, share)), decimals=2)
        for name, share in (("p50", 0.5), ("p95", 0.95))
    ]


async def _echo(bench: Bench) -> list[Figure]:
    there = await with_terminals(bench)
    if there is None:
        return []
    async with alone(there.home, ECHOES) as process:
        floor = await echoes_alone(process, bench.size.keystrokes)
    async with _client(there) as client:
        terminal = await _echoing(client)
        before, began = _cpu(there), time.monotonic()
        ours = await echo_seconds(_press(client, terminal), bench.size.keystrokes)
        spent, took = _since(there, before), time.monotonic() - began
        used = without_idle(spent, await _idle_rates(there, took), took)
        await client.request("disposeTerminal", {"terminal": terminal})
    return [*echo_figures("one terminal", ours, floor), *_cpu_figures(used, len(ours), "keystroke with its echo")]


async def _output(bench: Bench) -> list[Figure]:
    """A program that prints without pause, one viewer; and a terminal of another tenant in the same service."""
    there = await with_terminals(bench)
    if there is None:
        return []
    seconds = bench.size.paced_seconds
    async with alone(there.home, PRINTS) as process:
        floor = await bytes_alone(process, seconds)
    if "calm" not in there.kept:
        there.kept["calm"] = await asyncio.to_thread(there.installation.issue_key, "bench-calm")
    async with _client(there) as client, _client(there, there.kept["calm"]) as calm:
        other = await _echoing(calm)
        quiet = await echo_seconds(_press(calm, other), bench.size.keystrokes // 2)
        rates = await _idle_rates(there, seconds)
        terminal = await client.create_terminal()
        await client.type_into(terminal, f"{PRINTS}\n")
        await client.until_shown(terminal, f"{_LINE}\r\n{_LINE}")
        await asyncio.sleep(_FLOOD_SETTLES)
        before, programs, began = _cpu(there), _programs(there), time.monotonic()
        shown = client.screen(terminal).size
        beside = asyncio.create_task(echo_seconds(_press(calm, other), bench.size.keystrokes // 2))
        await asyncio.sleep(seconds)
        shown = client.screen(terminal).size - shown
        took = time.monotonic() - began
        used = without_idle(_since(there, before), rates, took)
        of_programs = _programs(there) - programs
        echoes = await beside
        await client.request("disposeTerminal", {"terminal": terminal})
    megas = shown / _MEGA
    return [
        Figure("output of one terminal to a viewer", "MB/s", megas / took, floor / _MEGA, decimals=2),
        *_cpu_figures(used, megas, "MB of output"),
        Figure("CPU of the programs in sandboxes, a MB of output", "ms", ms(of_programs / megas)),
        *echo_figures("beside another tenant's output (floor: without it)", echoes, quiet),
    ]


async def _idle(bench: Bench) -> list[Figure]:
    """Shells at their prompts, watched by one connection. The service has just been started and has run one terminal."""
    there = await with_terminals(bench)
    if there is None:
        return []
    count = bench.size.terminals
    service = there.installation.parts()["terminals"]
    async with _client(there) as client:
        first = await _prompt(client)
        await client.request("disposeTerminal", {"terminal": first})
        memory, programs = (
            processes.pss_mib(service, alone=True),
            processes.pss_mib(service) - processes.pss_mib(service, alone=True),
        )
        shares = await _shares(there)
        began = time.monotonic()
        for _ in range(count):
            await _prompt(client)
        took = time.monotonic() - began
        # The watchdog of a sandbox looks ever more rarely while nothing happens.
        await asyncio.sleep(bench.size.terminal_idle_seconds)
        idle = await _shares(there)
        held = processes.pss_mib(service, alone=True)
        of_programs = processes.pss_mib(service) - held - programs
    there.installation.stop_terminals()
    what = f"{count} idle terminals"
    return [
        Figure("terminal created until its prompt is shown, one after the other", "ms", ms(took / count)),
        Figure(f"memory of the terminal service with {what}, PSS (floor: without them)", "MiB", held, memory),
        Figure(f"memory of the service for each of {what}", "KiB", (held - memory) * 1024 / count),
        Figure(f"memory of the sandbox and shell of each of {what}", "MiB", of_programs / count, decimals=2),
        *(
            Figure(f"CPU of {part} with {what} (floor: without them)", "% of a core", share, shares[part], decimals=2)
            for part, share in idle.items()
        ),
    ]


# --- terminals over AHP ---


@asynccontextmanager
async def _client(there: Bench, key: str = "") -> AsyncIterator[AhpClient]:
    async with AhpClient(there.installation.origins[0], key or there.installation.key) as client:
        yield client


async def _prompt(client: AhpClient) -> str:
    terminal = await client.create_terminal()
    await client.until_shown(terminal, "$ ")
    return terminal


async def _echoing(client: AhpClient) -> str:
    terminal = await client.create_terminal()
    await client.type_into(terminal, f"{ECHOES}\n")
    await client.until_shown(terminal, "ready\n")
    await echo_seconds(_press(client, terminal), 5)
    return terminal


def _press(client: AhpClient, terminal: str) -> Press:
    screen = client.screen(terminal)

    async def press(character: str) -> None:
        screen.last = ""
        await client.type_into(terminal, character)
        await client.until_shown(terminal, character)

    return press


# --- the floor ---


@asynccontextmanager
async def alone(home: Path, program: str) -> AsyncIterator[pty.PtyProcess]:
    tree = home / f"floor-{secrets.token_hex(4)}"
    tree.mkdir()
    if who := sandbox.owner():
        os.chown(tree, *who)
    box = Box(tree, mounted_at="/workspace", cwd="/workspace")
    process = await pty.start(box, ["/bin/sh", "-c", program], {})
    try:
        yield process
    finally:
        await process.close()


async def echoes_alone(process: pty.PtyProcess, count: int) -> list[float]:
    seen = b""
    while b"ready" not in seen:
        seen += await process.read()

    async def press(character: str) -> None:
        await process.write(character.encode())
        while character.encode() not in await process.read():
            pass

    await echo_seconds(press, 5)
    return await echo_seconds(press, count)


async def bytes_alone(process: pty.PtyProcess, seconds: float) -> float:
    """Bytes a second."""
    size, began = len(await process.read()), time.monotonic()
    while time.monotonic() - began < seconds:
        size += len(await process.read())
    return size / (time.monotonic() - began)


# --- costs ---


def _cpu(there: Bench) -> dict[str, float]:
    """CPU time by part, without the programs in sandboxes."""
    found = {}
    for part, pids in there.installation.parts().items():
        found[part] = processes.cpu_seconds(pids, alone=part == "terminals")
    return found


def _programs(there: Bench) -> float:
    service = there.installation.parts()["terminals"]
    return processes.cpu_seconds(service) - processes.cpu_seconds(service, alone=True)


def _since(there: Bench, before: Mapping[str, float]) -> dict[str, float]:
    return {part: after - before[part] for part, after in _cpu(there).items()}


async def _idle_rates(there: Bench, seconds: float) -> dict[str, float]:
    """CPU seconds a second of each part while nothing happens."""
    before = _cpu(there)
    await asyncio.sleep(seconds)
    return {part: used / seconds for part, used in _since(there, before).items()}


def without_idle(spent: Mapping[str, float], rates: Mapping[str, float], took: float) -> dict[str, float]:
    """The CPU time of each part without what it uses in the same time while nothing happens."""
    return {part: max(0.0, seconds - rates[part] * took) for part, seconds in spent.items()}


def _cpu_figures(used: Mapping[str, float], count: float, what: str) -> list[Figure]:
    total = Figure(f"CPU a {what}, without programs in sandboxes", "ms", ms(sum(used.values()) / count), decimals=2)
    return [total, *(Figure(f"of it {part}, {what}", "ms", ms(spent / count), decimals=2) for part, spent in used.items())]


async def _shares(there: Bench) -> dict[str, float]:
    """Of a core, in percent, by part; Postgres and Redis together."""
    programs = _programs(there)
    rates = await _idle_rates(there, there.size.terminal_idle_seconds)
    shares = {part: rate * 100 for part, rate in rates.items() if part not in STORES}
    shares["sandboxes"] = (_programs(there) - programs) / there.size.terminal_idle_seconds * 100
    shares[" and ".join(STORES)] = sum(rates[part] for part in STORES) * 100
    return shares


ROWS = (
    Row("terminal-echo", "keystroke to echo over AHP beside the pseudo-terminal of a sandbox", _echo),
    Row("terminal-output", "output of a terminal to a viewer, and another tenant's keystrokes meanwhile", _output),
    Row("terminals-idle", "memory and CPU of 100 idle terminals in one service", _idle),
)
