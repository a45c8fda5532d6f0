"""The rows of the benchmark. Each puts a load on our server and, where it is comparable, on the floor right before."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from ops import services
from ops.benchmark import load, measure, slow_disk
from ops.benchmark.installation import LONG_TALK, Installation, installed
from ops.benchmark.load import Floor, Line, LoadError, Ours, Watched
from ops.benchmark.measure import Figure, percentile
from ops.benchmark.paced_model import model

_SETTLE_SECONDS = 0.5
"""Work that follows the end of a stream belongs to its cost."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the loads: FULL to measure, QUICK to check that the rows work."""

    single_turns: int = 40
    paced_seconds: float = 10
    paced_turns: int = 2
    creations: int = 2000
    list_requests: int = 200
    lists: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    idle: tuple[int, ...] = (10, 100, 1_000)
    idle_seconds: float = 10
    histories: tuple[int, ...] = (10, 1_000, 10_000)
    history_requests: int = 10
    workers: tuple[int, ...] = (1, 2, 4)
    crowd: int = 1000


FULL = Size()
QUICK = Size(
    single_turns=10,
    paced_seconds=5,
    paced_turns=1,
    creations=200,
    list_requests=40,
    lists=(1_000, 100_000),
    idle=(10, 100),
    idle_seconds=3,
    histories=(10, 1_000),
    history_requests=5,
    workers=(1, 2),
)
_SINGLE = model(5, 50)
_BURST_TOKENS, _BURST_STREAMS = 400, 50
_BURST = model(_BURST_TOKENS, 0)
_HOT_TOKENS, _HOT_STREAMS = 200, 200
_HOT = model(_HOT_TOKENS, 0)
_SLOW = model(60, 0.1)
"""Long enough for any measurement, with hardly any work."""


def _paced(rate: int, size: Size) -> tuple[str, int]:
    tokens = round(rate * size.paced_seconds)
    return model(tokens, rate), tokens


def models(size: Size) -> list[str]:
    """All models that the rows use; the server needs an agent for each."""
    return list(dict.fromkeys([_SINGLE, _BURST, _HOT, _SLOW, _paced(50, size)[0], _paced(20, size)[0]]))


@dataclass
class Bench:
    """The context of the rows. ``stack`` stops processes that a row starts in addition to the installation."""

    size: Size
    home: Path
    installation: Installation
    model_port: int
    stack: ExitStack
    say: Callable[[str], None]
    kept: dict[str, Any] = field(default_factory=dict)
    """Values that a row prepares for all its runs, by name."""

    @property
    def floor(self) -> Floor:
        return Floor(self.model_port)

    @property
    def ours(self) -> Ours:
        return self.installation.target()


Measure = Callable[[Bench], Awaitable[list[Figure]]]


@dataclass(frozen=True, slots=True)
class Row:
    """``measure`` is one run. It returns nothing if the row cannot be measured here, and logs the reason."""

    name: str
    what: str
    measure: Measure


@asynccontextmanager
async def _lines(target: Floor | Ours, count: int, asked: str) -> AsyncIterator[list[Line]]:
    lines = await target.lines(count, asked)
    try:
        yield lines
    finally:
        load.close(lines)


async def warm_up(bench: Bench) -> None:
    """Run each kind of request a few times: first times are not measured."""
    async with _lines(bench.ours, 4, _SINGLE) as lines:
        await load.crowd(lines, 5, 0.1)


def _ms(seconds: float) -> float:
    return seconds * 1000


# --- streams ---


async def _first_delta(bench: Bench) -> list[Figure]:
    found = []
    for target in (bench.floor, bench.ours):
        async with _lines(target, 1, _SINGLE) as lines:
            before = bench.installation.cpu_by_part()
            watched = await load.in_turn(lines[0], bench.size.single_turns)
            load.check(watched, 5)
            found.append(_ms(median(each.first for each in watched)))
    floor, ours = found
    return [
        Figure("first delta, 1 stream", "ms", ours, floor, decimals=2),
        Figure("added to it", "ms", ours - floor, at_most=5, decimals=2),
        *_cpu(bench, before, bench.size.single_turns, "turn of 5 deltas", 1e3, "ms"),
    ]


def _cpu(bench: Bench, before: dict[str, float], count: int, what: str, units: float, unit: str) -> list[Figure]:
    """CPU since ``before`` per item of ``count``, in total and by process."""
    after = bench.installation.cpu_by_part()
    spent = {part: (after[part] - before[part]) / count * units for part in after}
    parts = [Figure(f"of it {part}, {what}", unit, used) for part, used in spent.items()]
    return [Figure(f"CPU a {what}", unit, sum(spent.values())), *parts]


async def _paced_load(bench: Bench, target: Floor | Ours, streams: int, rate: int) -> list[Watched]:
    """Streams whose starts are spread over the duration of one; each is repeated when it ends."""
    name, tokens = _paced(rate, bench.size)
    async with _lines(target, streams, name) as lines:
        watched = await load.crowd(lines, bench.size.paced_turns, bench.size.paced_seconds)
    load.check(watched, tokens)
    return watched


def _gaps(watched: Sequence[Watched]) -> list[float]:
    return [gap for each in watched for gap in each.gaps]


async def _streams_50(bench: Bench) -> list[Figure]:
    floor = await _paced_load(bench, bench.floor, 50, 50)
    ours = await _paced_load(bench, bench.ours, 50, 50)

    what = "50 streams x 50 tokens/s"
    return [
        _first_figure(f"p50, {what}", 0.5, ours, floor),
        _first_figure(f"p95, {what}", 0.95, ours, floor, 33),
        _gap_figure(what, ours, floor),
    ]


def _first_figure(
    what: str, share: float, ours: Sequence[Watched], floor: Sequence[Watched] | None = None, at_most: float | None = None
) -> Figure:
    lowest = None if floor is None else _ms(percentile((each.first for each in floor), share))
    return Figure(f"TTFT {what}", "ms", _ms(percentile((each.first for each in ours), share)), lowest, at_most)


def _gap_figure(
    what: str, ours: Sequence[Watched], floor: Sequence[Watched] | None = None, at_most: float | None = None
) -> Figure:
    lowest = None if floor is None else _ms(percentile(_gaps(floor), 0.99))
    return Figure(f"gap between deltas p99, {what}", "ms", _ms(percentile(_gaps(ours), 0.99)), lowest, at_most)


async def _streams_200(bench: Bench) -> list[Figure]:
    floor = await _paced_load(bench, bench.floor, 200, 20)
    before = bench.installation.cpu_by_part()
    ours = await _paced_load(bench, bench.ours, 200, 20)
    await asyncio.sleep(_SETTLE_SECONDS)
    what = "200 streams x 20 tokens/s"
    total, *parts = _cpu(bench, before, sum(each.tokens for each in ours), f"delta, {what}", 1e6, "µs")
    return [
        _first_figure(f"p50, {what}", 0.5, ours, floor, 62),
        _first_figure(f"p95, {what}", 0.95, ours, floor, 110),
        _gap_figure(what, ours, floor, 62),
        replace(total, at_most=200),
        *parts,
        Figure("memory of web and worker after it", "MiB", measure.resident_mib(bench.installation.own_pids), at_most=350),
    ]


async def _burst_rate(target: Floor | Ours, streams: int, name: str, tokens: int) -> float:
    async with _lines(target, streams, name) as lines:
        began = time.monotonic()
        watched = await load.crowd(lines, 1, 0)
    load.check(watched, tokens)
    return streams * tokens / (max(each.ended for each in watched) - began)


async def _burst(bench: Bench) -> list[Figure]:
    floor = await _burst_rate(bench.floor, _BURST_STREAMS, _BURST, _BURST_TOKENS)
    before = bench.installation.cpu_by_part()
    ours = await _burst_rate(bench.ours, _BURST_STREAMS, _BURST, _BURST_TOKENS)
    return [
        Figure("burst, 50 streams x 400 tokens", "tokens/s", ours, floor, at_least=60_000, decimals=0),
        *_cpu(bench, before, _BURST_STREAMS * _BURST_TOKENS, "token of the burst", 1e6, "µs"),
    ]


async def _idle(bench: Bench) -> list[Figure]:
    """Streams that wait for later turns: only keep-alive comments are sent on them."""
    figures = []
    ours, installation = bench.ours, bench.installation
    memory_before = measure.resident_mib(installation.own_pids)
    for count in bench.size.idle:
        connections = await ours.connections(count)
        try:
            for connection in connections:
                session = await ours.session(connection, _SINGLE)
                await connection.ask(ours.get(f"sessions/{session}/events/stream?stream=delta&follow=true"))
            await asyncio.sleep(_SETTLE_SECONDS)
            before = installation.cpu_seconds()
            await asyncio.sleep(bench.size.idle_seconds)
            share = (installation.cpu_seconds() - before) / bench.size.idle_seconds * 100
            memory = measure.resident_mib(installation.own_pids) - memory_before
        finally:
            for connection in connections:
                connection.close()
        figures.append(Figure(f"CPU with {count:,} idle streams", "% of a core", share))
        figures.append(Figure(f"memory for {count:,} idle streams", "MiB", memory))
        await asyncio.sleep(_SETTLE_SECONDS)
    return figures


# --- sessions ---


async def _create(bench: Bench) -> list[Figure]:
    before = bench.installation.cpu_by_part()
    rate = await _creations(bench, bench.installation)
    return [
        Figure("sessions created, 16 at once", "a second", rate, at_least=700, decimals=0),
        *_cpu(bench, before, bench.size.creations, "session created", 1e3, "ms"),
    ]


async def _creations(bench: Bench, installation: Installation) -> float:
    ours = installation.target()
    connections = await ours.connections(16)
    asked = ours.creation(_SINGLE)
    left = bench.size.creations

    async def one(connection: load.Connection) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await connection.ask(asked)

    began = time.monotonic()
    await asyncio.gather(*(one(connection) for connection in connections))
    took = time.monotonic() - began
    for connection in connections:
        connection.close()
    return bench.size.creations / took


_MANY_SESSIONS = """
insert into sessions_app_session (tenant_id, public_id, agent_name, client_tools, created_at, modified_at)
select t.id, 'sess_bench' || t.id || '_' || n, %s, '[]', now() - n * interval '1 second', now() - n * interval '1 second'
from sessions_app_tenant t, generate_series(1, %s) n where t.slug = %s
"""


async def _list(bench: Bench) -> list[Figure]:
    figures = []
    for count in bench.size.lists:
        key = bench.kept.get(f"list {count}")
        if key is None:
            bench.say(f"making {count:,} sessions")
            slug = f"bench-list-{count}"
            key = bench.kept[f"list {count}"] = bench.installation.issue_key(slug)
            with bench.installation.database() as connection:
                connection.execute(_MANY_SESSIONS, (_SINGLE, count, slug))
                connection.execute("vacuum analyze sessions_app_session")
        took = await _walk(bench.installation.target(key), bench.size.list_requests)
        at_most = 20.0 if count == 1_000_000 else None
        figures.append(Figure(f"list of 50 among {count:,} sessions, p95", "ms", _ms(percentile(took, 0.95)), at_most=at_most))
    return figures


async def _walk(ours: Ours, requests: int) -> list[float]:
    """The duration of each page request: page after page, starting again after the last."""
    (connection,) = await ours.connections(1)
    took = []
    cursor: str | None = None
    for _ in range(requests):
        began = time.monotonic()
        page = json.loads(await connection.ask(ours.get("sessions" if cursor is None else f"sessions?after={cursor}")))
        took.append(time.monotonic() - began)
        if len(page["sessions"]) != 50:
            raise LoadError(f"a page of {len(page['sessions'])} sessions instead of 50")
        cursor = page.get("next")
    connection.close()
    return took


async def _history(bench: Bench) -> list[Figure]:
    figures = []
    ours = bench.ours
    for count in bench.size.histories:
        (connection,) = await ours.connections(1)
        try:
            # A new session each time, because the turns below make it longer.
            said = [{"role": "assistant" if n % 2 else "user", "content": f"Message {n} of a long talk."} for n in range(count)]
            session = await ours.session(connection, _SINGLE, said)
            took = []
            for _ in range(bench.size.history_requests):
                began = time.monotonic()
                await connection.ask(ours.get(f"sessions/{session}/history?type=full"))
                took.append(time.monotonic() - began)
            watched = await load.in_turn(Line(connection, ours.turn(session)), bench.size.history_requests)
        finally:
            connection.close()
        load.check(watched, 5)
        figures.append(Figure(f"history of {count:,} messages read", "ms", _ms(median(took))))
        figures.append(Figure(f"first delta behind {count:,} messages", "ms", _ms(median(each.first for each in watched))))
    return figures


async def _long_talk(bench: Bench) -> list[Figure]:
    """Turns in a conversation of ten messages and in one of thousands, whose beginning was summarised in a first turn."""
    ours = bench.ours
    short, long = bench.size.histories[0], bench.size.histories[-1]
    connections = await ours.connections(2)
    lines: dict[int, Line] = {}
    watched: dict[int, list[Watched]] = {short: [], long: []}
    try:
        for count, connection in zip((short, long), connections, strict=True):
            said = [{"role": "assistant" if n % 2 else "user", "content": f"Message {n} of a long talk."} for n in range(count)]
            lines[count] = Line(connection, ours.turn(await ours.session(connection, LONG_TALK, said)))
            await load.in_turn(lines[count], 3)
        # In alternation, so that both see the same state of the machine.
        for _ in range(bench.size.single_turns):
            for count, line in lines.items():
                watched[count] += await load.in_turn(line, 1)
    finally:
        for connection in connections:
            connection.close()
    firsts = {count: _ms(median(each.first for each in found)) for count, found in watched.items()}
    for found in watched.values():
        load.check(found, 5)
    what = f"first delta behind {long:,} messages that were summarised (floor: behind {short:,})"
    return [Figure(what, "ms", firsts[long], firsts[short])]


# --- the installation itself ---


async def _workers(bench: Bench) -> list[Figure]:
    """One tenant, unpaced: all workers compete for the same counter."""
    figures = []
    try:
        for count in bench.size.workers:
            await asyncio.to_thread(bench.installation.set_workers, count)
            async with _lines(bench.ours, 8 * count, _SINGLE) as lines:
                await load.crowd(lines, 2, 0)
            rate = await _burst_rate(bench.ours, _HOT_STREAMS, _HOT, _HOT_TOKENS)
            label = f"one hot tenant, {count} worker{'s' if count > 1 else ''}, 200 streams x 200 tokens"
            figures.append(Figure(label, "tokens/s", rate, decimals=0))
    finally:
        await asyncio.to_thread(bench.installation.set_workers, 1)
    return figures


async def _fairness(bench: Bench) -> list[Figure]:
    """A tenant's turns, one at a time, alone and while another tenant has as many queued turns as it may have."""
    key = bench.kept.get("other tenant")
    if key is None:
        key = bench.kept["other tenant"] = bench.installation.issue_key("bench-other")
    async with _lines(bench.installation.target(key), 1, _SINGLE) as lines:
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
    return [_first_figure(f"p50, {what}", 0.5, beside, alone), _first_figure(f"p95, {what}", 0.95, beside, alone)]


async def _stand_in_line(bench: Bench) -> list[str]:
    """Create sessions, each with an accepted turn whose stream no client reads."""
    ours, waiting = bench.ours, bench.size.crowd
    sessions: list[str] = []

    async def one(connection: load.Connection) -> None:
        nonlocal waiting
        while waiting > 0:
            waiting -= 1
            sessions.append(await ours.session(connection, _SLOW))
            await ours.start(sessions[-1])

    await _by_16(ours, one)
    return sessions


async def _delete(bench: Bench, sessions: Sequence[str]) -> None:
    ours, left = bench.ours, list(sessions)

    async def one(connection: load.Connection) -> None:
        while left:
            await connection.ask(ours.deletion(left.pop()))

    await _by_16(ours, one)


async def _by_16(ours: Ours, one: Callable[[load.Connection], Awaitable[None]]) -> None:
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
    there = Bench(bench.size, bench.home, installation, bench.model_port, bench.stack, bench.say)
    await warm_up(there)
    watched = await _paced_load(there, there.ours, 200, 20)
    disk = f"{slow_disk.MILLISECONDS} ms fsync"
    return [
        _first_figure(f"p50, 200 streams x 20 tokens/s, {disk}", 0.5, watched),
        _first_figure(f"p95, 200 streams x 20 tokens/s, {disk}", 0.95, watched),
        _gap_figure(f"200 streams x 20 tokens/s, {disk}", watched),
        Figure(f"sessions created, 16 at once, {disk}", "a second", await _creations(there, installation), decimals=0),
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
            running = installed(home, bench.model_port, models(bench.size), webs=1, workers=1, postgres=postgres)
            bench.kept["slow disk"] = bench.stack.enter_context(running)
    kept: Installation | None = bench.kept["slow disk"]
    return kept


ROWS = (
    Row("first-delta", "added time to the first delta with 1 stream", _first_delta),
    Row("streams-50", "50 streams x 50 tokens/s: TTFT, gaps", _streams_50),
    Row("streams-200", "200 streams x 20 tokens/s: TTFT, gaps, CPU a delta, memory", _streams_200),
    Row("burst", "50 streams x 400 tokens, unpaced", _burst),
    Row("create", "sessions created by 16 clients at once", _create),
    Row("list", "a list of 50 among ever more sessions", _list),
    Row("idle", "ever more streams on which nothing happens", _idle),
    Row("history", "ever longer histories", _history),
    Row("long-talk", "a conversation of thousands of messages that was summarised beside one of ten", _long_talk),
    Row("workers", "1 to 4 workers on one tenant", _workers),
    Row("fairness", "one tenant's turns beside another's crowd", _fairness),
    Row("slow-disk", "a disk that takes 3 ms for an fsync", _slow_disk),
)
