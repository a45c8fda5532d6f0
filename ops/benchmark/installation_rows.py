"""Rows about whole installations: several workers, several tenants, a slow disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ops import services
from ops.benchmark import load, slow_disk
from ops.benchmark.figures import Figure
from ops.benchmark.installation import Installation, Shape, installed
from ops.benchmark.load import Aap
from ops.benchmark.session_rows import creation_rate
from ops.benchmark.setting import (
    HOT,
    HOT_STREAMS,
    HOT_TOKENS,
    SINGLE,
    SLOW,
    Bench,
    Cpu,
    Row,
    Streams,
    first_figures,
    gap_figure,
    lines_of,
    models,
    ms,
    steady_200,
    streamed,
    warm_up,
)
from ops.benchmark.stream_rows import burst_rate


async def _workers(bench: Bench) -> list[Figure]:
    """One tenant, unpaced: all workers compete for the same counter."""
    figures = []
    before = len(bench.installation.parts()["worker"])
    try:
        for count in bench.size.workers:
            await asyncio.to_thread(bench.installation.set_workers, count)
            async with lines_of(bench.ours, 8 * count, SINGLE) as lines:
                await load.crowd(lines, 2, 0)
            rate = await burst_rate(bench.ours, HOT_STREAMS, HOT, HOT_TOKENS)
            label = f"one hot tenant, {count} worker{'s' if count > 1 else ''}, 200 streams x 200 tokens"
            figures.append(Figure(label, "tokens/s", rate, decimals=0))
    finally:
        await asyncio.to_thread(bench.installation.set_workers, before)
    return figures


async def _tenants(bench: Bench) -> list[Figure]:
    """Many short turns of many tenants; the floor are as many of one tenant."""
    streams = Streams(50, 50, 10, bench.size.short_turns)
    keys = bench.kept.get("tenants")
    if keys is None:
        slugs = [f"bench-{number}" for number in range(bench.size.tenants)]
        keys = bench.kept["tenants"] = await asyncio.to_thread(bench.installation.checkout.issue_keys, *slugs)
    found = []
    for target in (bench.ours, bench.server.target(*keys)):
        cpu = Cpu(bench)
        watched = await streamed(target, streams)
        found.append((watched, ms(sum((await cpu.spent()).values()) / len(watched))))
    (one, one_cpu), (many, many_cpu) = found
    what = f"50 streams x 10 tokens of {bench.size.tenants} tenants (floor: of one)"
    return [*first_figures(what, many, one), Figure(f"CPU a turn, {what}", "ms", many_cpu, one_cpu, decimals=2)]


async def _fairness(bench: Bench) -> list[Figure]:
    """A tenant's turns, one at a time, alone and while another tenant has as many queued turns as it may have."""
    key = bench.kept.get("other tenant")
    if key is None:
        key = bench.kept["other tenant"] = bench.installation.issue_key("bench-other")
    async with lines_of(bench.installation.target(key), 1, SINGLE) as lines:
        await load.in_turn(lines[0], 3)
        alone = await load.in_turn(lines[0], bench.size.single_turns)
        sessions = await _stand_in_line(bench)
        try:
            beside = await load.in_turn(lines[0], bench.size.single_turns)
        finally:
            await _delete(bench, sessions)
    for watched in (alone, beside):
        load.check(watched, 5)
    what = f"beside {bench.size.crowd:,} queued turns of another tenant (floor: without them)"
    return first_figures(what, beside, alone)


async def _stand_in_line(bench: Bench) -> list[str]:
    """Create sessions, each with an accepted turn whose stream no client reads."""
    ours, waiting = bench.ours, bench.size.crowd
    sessions: list[str] = []

    async def one(connection: load.Connection) -> None:
        nonlocal waiting
        while waiting > 0:
            waiting -= 1
            sessions.append(await ours.session(connection, SLOW))
            await ours.start(sessions[-1])

    await _by_16(ours, one)
    return sessions


async def _delete(bench: Bench, sessions: Sequence[str]) -> None:
    ours, left = bench.ours, list(sessions)

    async def one(connection: load.Connection) -> None:
        while left:
            await connection.ask(ours.deletion(left.pop()))

    await _by_16(ours, one)


async def _by_16(ours: Aap, one: Callable[[load.Connection], Awaitable[None]]) -> None:
    connections = await ours.connections(16)
    try:
        await asyncio.gather(*(one(connection) for connection in connections))
    finally:
        for connection in connections:
            connection.close()


async def _slow_disk(bench: Bench) -> list[Figure]:
    installation = await asyncio.to_thread(_on_slow_disk, bench)
    if installation is None:
        return []
    there = Bench(bench.size, bench.home, installation, bench.model_port, bench.stack, bench.say, bench.root)
    await warm_up(there)
    watched = await streamed(there.ours, steady_200(bench.size))
    disk = f"{slow_disk.MILLISECONDS} ms fsync"
    what = f"200 streams x 20 tokens/s, {disk}"
    rate = await creation_rate(there)
    return [
        *first_figures(what, watched),
        gap_figure(what, watched),
        Figure(f"sessions created, 16 at once, {disk}", "a second", rate, decimals=0),
    ]


def _on_slow_disk(bench: Bench) -> Installation | None:
    """A second installation, reused by the other runs; None if this machine cannot have a slow disk."""
    if "slow disk" not in bench.kept:
        home = bench.home / "slow"
        home.mkdir(mode=0o711)
        try:
            postgres: services.Postgres = bench.stack.enter_context(slow_disk.postgres(home))
        except slow_disk.NoSlowDiskError as error:
            bench.say(f"no disk with a {slow_disk.MILLISECONDS} ms fsync here: {error}")
            bench.kept["slow disk"] = None
        else:
            running = installed(home, bench.model_port, models(bench.size), Shape(bench.root), postgres)
            bench.kept["slow disk"] = bench.stack.enter_context(running)
    kept: Installation | None = bench.kept["slow disk"]
    return kept


ROWS = (
    Row("workers", "1 to 4 workers on one tenant", _workers),
    Row("tenants", "many tenants' short turns beside one tenant's", _tenants),
    Row("fairness", "one tenant's turns beside another's crowd", _fairness),
    Row("slow-disk", "a disk that takes 3 ms for an fsync", _slow_disk),
)
