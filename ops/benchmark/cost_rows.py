"""Rows about what the server costs: counts of a turn, memory, idle streams, and the embedded server's figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count

from ops import services
from ops.benchmark import load, postgres_counts, processes
from ops.benchmark.ahp import AhpConnections
from ops.benchmark.figures import Figure
from ops.benchmark.installation import Shape, embedded, installed
from ops.benchmark.session_rows import creation_rate
from ops.benchmark.setting import (
    AT_ONCE,
    SETTLE_SECONDS,
    SINGLE,
    Bench,
    Row,
    first_figures,
    lines_of,
    models,
    steady_50,
    steady_200,
    streamed,
    streamed_floor,
    warm_up,
)
from ops.benchmark.stream_rows import first_delta

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class _Counts:
    switches: dict[str, int]
    fsyncs: int

    @classmethod
    def now(cls, bench: Bench) -> _Counts:
        parts = bench.installation.parts()
        switches = {part: processes.switches(pids) for part, pids in parts.items()}
        return cls(switches, postgres_counts.wal_fsyncs(bench.installation.postgres))


async def _turn_counts(bench: Bench) -> list[Figure]:
    """Turns of one unpaced token, one after the other. What the idle server does in the same time is subtracted."""
    turns = bench.size.counted_turns
    async with lines_of(bench.ours, 1, AT_ONCE) as lines:
        load.check(await load.in_turn(lines[0], 5), 1)
        await asyncio.sleep(postgres_counts.FLUSH_SECONDS)
        before, began = _Counts.now(bench), time.monotonic()
        load.check(await load.in_turn(lines[0], turns), 1)
        await asyncio.sleep(postgres_counts.FLUSH_SECONDS)
        loaded, took = _Counts.now(bench), time.monotonic() - began
        await asyncio.sleep(took)
        idle = _Counts.now(bench)
        statements = await _statements(bench, lines[0], turns)
    switches = {
        part: (2 * loaded.switches[part] - before.switches[part] - idle.switches[part]) / turns for part in loaded.switches
    }
    fsyncs = (2 * loaded.fsyncs - before.fsyncs - idle.fsyncs) / turns
    what = "a turn of one token"
    return [
        Figure(f"context switches, {what}", "switches", sum(switches.values()), at_most=45),
        *(Figure(f"of them {part}, {what}", "switches", number) for part, number in switches.items()),
        Figure(f"statements, {what}", "statements", statements, at_most=12),
        Figure(f"WAL fsyncs, {what}", "fsyncs", fsyncs, at_most=3, decimals=2),
    ]


async def _statements(bench: Bench, line: load.Line, turns: int) -> float:
    with postgres_counts.logged_statements(bench.installation.postgres) as logged:
        began = time.monotonic()
        load.check(await load.in_turn(line, turns), 1)
        await asyncio.sleep(SETTLE_SECONDS)
        took, loaded = time.monotonic() - began, logged.total()
        await asyncio.sleep(took)
        return (2 * loaded - logged.total()) / turns


async def _memory(bench: Bench) -> list[Figure]:
    """A fresh installation of two webs and two workers, after 200 streams."""
    home = bench.home / f"memory-{next(_numbers)}"
    home.mkdir(mode=0o711)
    postgres = services.Postgres(home, crash_safe=True)
    shape = Shape(bench.root, webs=2, workers=2, forked=True)
    starting = installed(home, bench.model_port, models(bench.size), shape, postgres)
    installation = await asyncio.to_thread(starting.__enter__)
    try:
        there = Bench(bench.size, home, installation, bench.model_port, bench.stack, bench.say, bench.root)
        at_start = installation.memory_by_part()
        await warm_up(there)
        await streamed(there.ours, steady_200(bench.size))
        await asyncio.sleep(SETTLE_SECONDS)
        after = installation.memory_by_part()
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)
    what = "2 webs and 2 workers, PSS"
    return [
        Figure(f"memory after the start, {what}", "MiB", at_start[""]),
        Figure(f"memory after 200 streams, {what}", "MiB", after[""], at_most=250),
        *(
            Figure(
                f"of it the part {part} with its supervisor, after 200 streams (floor: after the start)", "MiB", after[part], mib
            )
            for part, mib in at_start.items()
            if part
        ),
    ]


async def _idle_streams(bench: Bench) -> list[Figure]:
    """Streams that wait for later turns: only keep-alive comments are sent on them."""

    async def opened(streams: int, stack: AsyncExitStack) -> None:
        ours = bench.ours
        for _ in range(streams):
            connection = await ours.connection()
            stack.callback(connection.close)
            session = await ours.session(connection, SINGLE)
            await connection.ask(ours.get(f"sessions/{session}/events/stream?stream=delta&follow=true"))

    return await _idle(bench, "idle streams", opened)


async def _idle_ahp(bench: Bench) -> list[Figure]:
    """AHP connections that watch the list of agents and one session each; nothing happens in them."""
    numbers = count()

    async def opened(connections: int, stack: AsyncExitStack) -> None:
        client = await stack.enter_async_context(AhpConnections(bench.installation.origins, bench.installation.key))
        for _ in range(connections):
            await client.open(f"bench-{next(numbers)}", SINGLE)

    return await _idle(bench, "idle AHP connections", opened)


async def _idle(bench: Bench, what: str, opened: Callable[[int, AsyncExitStack], Awaitable[None]]) -> list[Figure]:
    """What so many cost, and what they leave. The floor is the server without them."""
    figures = []
    server = bench.server
    memory_before = server.memory_mib()
    share_before = await _cpu_share(bench)
    for number in bench.size.idle:
        async with AsyncExitStack() as stack:
            await opened(number, stack)
            await asyncio.sleep(SETTLE_SECONDS)
            share = await _cpu_share(bench)
            each = (server.memory_mib() - memory_before) * 1024 / number
        at_most = (0.5, 20.0) if number == 1000 else (None, None)
        figures += [
            Figure(f"CPU with {number:,} {what}", "% of a core", share, share_before, decimals=2),
            Figure(f"CPU added by {number:,} {what}", "% of a core", share - share_before, at_most=at_most[0], decimals=2),
            Figure(f"memory of each of {number:,} {what}", "KiB", each, at_most=at_most[1]),
        ]
        await asyncio.sleep(SETTLE_SECONDS)
    left = server.memory_mib() - memory_before
    return [*figures, Figure(f"memory kept after {what} have ended", "MiB", left)]


async def _cpu_share(bench: Bench) -> float:
    before = bench.server.cpu_seconds()
    await asyncio.sleep(bench.size.idle_seconds)
    return (bench.server.cpu_seconds() - before) / bench.size.idle_seconds * 100


async def _embedded(bench: Bench) -> list[Figure]:
    if "embedded" not in bench.kept:
        home = bench.home / "embedded"
        starting = embedded(home, bench.model_port, models(bench.size), bench.root)
        server = await asyncio.to_thread(bench.stack.enter_context, starting)
        bench.kept["embedded"] = Bench(bench.size, home, server, bench.model_port, bench.stack, bench.say, bench.root)
        await warm_up(bench.kept["embedded"])
    there: Bench = bench.kept["embedded"]
    first = await first_delta(there)
    floor = await streamed_floor(bench, steady_50(bench.size))
    ours = await streamed(there.ours, steady_50(bench.size))
    p50, p95 = first_figures("50 streams x 50 tokens/s", ours, floor)
    rate = await creation_rate(there)
    figures = [
        replace(first[0]),
        replace(first[1], at_most=7, beside_at_most=None),
        *first[2:],
        p50,
        replace(p95, at_most=60),
        Figure("sessions created, 16 at once", "a second", rate, beside_at_least=3, decimals=0),
    ]
    return [replace(figure, label=f"embedded: {figure.label}") for figure in figures]


ROWS = (
    Row("turn-counts", "context switches, statements and fsyncs of a turn of one token", _turn_counts),
    Row("memory", "PSS of 2 webs and 2 workers after 200 streams", _memory),
    Row("idle", "ever more streams on which nothing happens", _idle_streams),
    Row("idle-ahp", "ever more AHP connections on which nothing happens", _idle_ahp),
    Row("embedded", "the embedded server on SQLite: first delta, 50 streams, sessions created", _embedded),
)
