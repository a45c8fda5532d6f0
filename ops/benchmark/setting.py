"""What a row measures with: the server, the size of the loads, and helpers that several rows use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.benchmark import load
from ops.benchmark.figures import Figure, percentile
from ops.benchmark.installation import ROOT, Installation, Server
from ops.benchmark.load import Aap, Chat, Line, Target, Watched
from ops.benchmark.paced_model import model

SETTLE_SECONDS = 0.5
"""Work that follows the end of a stream belongs to its cost."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the loads: FULL to measure, QUICK to check that the rows work."""

    single_turns: int = 40
    steady_turns: int = 2
    short_turns: int = 40
    paced_seconds: float = 10
    creations: int = 2000
    list_requests: int = 200
    lists: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    idle: tuple[int, ...] = (10, 100, 1_000)
    idle_seconds: float = 10
    histories: tuple[int, ...] = (10, 1_000, 10_000)
    history_requests: int = 10
    workers: tuple[int, ...] = (1, 2, 4)
    crowd: int = 1000
    counted_turns: int = 200
    tenants: int = 50
    keystrokes: int = 200
    terminals: int = 100
    terminal_idle_seconds: float = 16
    """Twice as long as the pause between two looks at the memory of an idle sandbox."""
    files: int = 10_000
    file_reads: int = 500
    searched: int = 1_000_000
    key_changes: int = 4_000
    mixed_watchers: tuple[int, ...] = (6, 60)
    mixed_turns: int = 5
    watchers: int = 1000


FULL = Size()
QUICK = Size(
    single_turns=10,
    steady_turns=1,
    short_turns=4,
    paced_seconds=2,
    creations=200,
    list_requests=40,
    lists=(1_000, 100_000),
    idle=(10, 100),
    idle_seconds=3,
    histories=(10, 1_000),
    history_requests=5,
    workers=(1, 2),
    counted_turns=20,
    tenants=5,
    keystrokes=20,
    terminals=5,
    terminal_idle_seconds=3,
    files=500,
    file_reads=50,
    searched=20_000,
    key_changes=400,
    mixed_watchers=(6,),
    mixed_turns=1,
    watchers=50,
)


@dataclass(frozen=True, slots=True)
class Streams:
    """A load: so many streams at once, each of so many tokens at this rate; how often each is repeated."""

    count: int
    rate: int
    tokens: int
    turns: int = 1

    @property
    def model(self) -> str:
        return model(self.tokens, self.rate)

    @property
    def seconds(self) -> float:
        return self.tokens / self.rate


ONE = model(1, 20)
SINGLE = model(5, 50)
SHORT = model(10, 50)
LONGER = model(100, 20)
SLOW = model(60, 0.1)
"""Long enough for any measurement, with hardly any work."""
BRISK = model(200, 100)
AT_ONCE = model(1, 0)
BURST_TOKENS, BURST_STREAMS = 400, 50
BURST = model(BURST_TOKENS, 0)
HOT_TOKENS, HOT_STREAMS = 200, 200
HOT = model(HOT_TOKENS, 0)


def steady_50(size: Size) -> Streams:
    return Streams(50, 50, round(50 * size.paced_seconds), size.steady_turns)


def steady_200(size: Size) -> Streams:
    """Turns of 100 tokens, so 40 of them start each second."""
    return Streams(200, 20, 100, 2 * size.steady_turns)


def watched_5(size: Size) -> Streams:
    """A token every 200 ms: a thousand watchers get 5,000 envelopes a second."""
    return Streams(1, 5, round(5 * size.paced_seconds))


def models(size: Size) -> list[str]:
    """All models that the rows use; the server needs an agent for each."""
    paced = [streams(size).model for streams in (steady_50, steady_200, watched_5)]
    return list(dict.fromkeys([SINGLE, AT_ONCE, ONE, SHORT, LONGER, SLOW, BRISK, BURST, HOT, *paced]))


@dataclass
class Bench:
    """The context of the rows. ``stack`` stops processes that a row starts in addition to the server."""

    size: Size
    home: Path
    server: Server
    model_port: int
    stack: ExitStack
    say: Callable[[str], None]
    root: Path = ROOT
    """The checkout that the server's code is from."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Values that a row prepares for all its runs, by name."""

    @property
    def installation(self) -> Installation:
        assert isinstance(self.server, Installation), "this row needs an installation of its own"
        return self.server

    @property
    def floor(self) -> Chat | None:
        """The scripted model server; None if the server under measurement uses a model of its own."""
        return load.floor(self.model_port) if self.model_port else None

    @property
    def target(self) -> Aap | Chat:
        return self.server.target()

    @property
    def ours(self) -> Aap:
        target = self.target
        assert isinstance(target, Aap), "this row needs AAP"
        return target


Measure = Callable[[Bench], Awaitable[list[Figure]]]


@dataclass(frozen=True, slots=True)
class Row:
    """``measure`` is one run. It returns nothing if the row cannot be measured here, and logs the reason."""

    name: str
    what: str
    measure: Measure
    anywhere: tuple[type, ...] = ()
    """The kinds of other servers that it can measure too."""


@asynccontextmanager
async def lines_of(target: Target, count: int, asked: str) -> AsyncIterator[list[Line]]:
    lines = await target.lines(count, asked)
    try:
        yield lines
    finally:
        load.close(lines)


async def warm_up(bench: Bench) -> None:
    """Run each kind of request a few times: first times are not measured."""
    async with lines_of(bench.target, 4, SINGLE) as lines:
        await load.crowd(lines, 5, 0.1)


def ms(seconds: float) -> float:
    return seconds * 1000


def first_ms(watched: Sequence[Watched], share: float) -> float:
    return ms(percentile((each.first for each in watched), share))


def first_figures(what: str, ours: Sequence[Watched], floor: Sequence[Watched] | None = None) -> list[Figure]:
    """The median and the 95th percentile of the time to the first token."""
    return [
        Figure(f"TTFT {name}, {what}", "ms", first_ms(ours, share), None if floor is None else first_ms(floor, share))
        for name, share in (("p50", 0.5), ("p95", 0.95))
    ]


def gap_figure(what: str, ours: Sequence[Watched], floor: Sequence[Watched] | None = None) -> Figure:
    lowest = None if floor is None else _gap_ms(floor)
    return Figure(f"gap between deltas p99, {what}", "ms", _gap_ms(ours), lowest)


def _gap_ms(watched: Sequence[Watched]) -> float:
    return ms(percentile((gap for each in watched for gap in each.gaps), 0.99))


class Cpu:
    """CPU time that the server spends from now on."""

    def __init__(self, bench: Bench) -> None:
        self._server, self._before = bench.server, bench.server.cpu_by_part()

    async def spent(self) -> dict[str, float]:
        """Seconds by part, with the work that follows the end of the load."""
        await asyncio.sleep(SETTLE_SECONDS)
        after = self._server.cpu_by_part()
        return {part: after[part] - self._before.get(part, 0.0) for part in after}

    async def figures(self, count: int, what: str, units: float, unit: str) -> list[Figure]:
        """CPU per item of ``count``, in total and by part."""
        spent = {part: seconds / count * units for part, seconds in (await self.spent()).items()}
        if not spent:
            return []
        parts = [Figure(f"of it {part}, {what}", unit, used) for part, used in spent.items()]
        return [Figure(f"CPU a {what}", unit, sum(spent.values())), *(parts if len(parts) > 1 else [])]


async def streamed(target: Target, streams: Streams) -> list[Watched]:
    """Streams whose starts are spread over the duration of one; each is repeated when it ends."""
    async with lines_of(target, streams.count, streams.model) as lines:
        watched = await load.crowd(lines, streams.turns, streams.seconds)
    target.check(watched, streams.tokens)
    return watched


async def streamed_floor(bench: Bench, streams: Streams) -> list[Watched] | None:
    return None if bench.floor is None else await streamed(bench.floor, streams)


async def started_floor(bench: Bench, streams: Streams, starts: int, a_second: float) -> list[Watched] | None:
    return None if bench.floor is None else await started(bench.floor, streams, starts, a_second)


async def started(target: Target, streams: Streams, starts: int, a_second: float) -> list[Watched]:
    """Streams that start at a fixed rate, whether earlier ones have ended or not."""
    async with lines_of(target, streams.count, streams.model) as lines:
        watched = await load.open_loop(lines, starts, a_second)
    target.check(watched, streams.tokens)
    return watched
