"""Rows about AHP clients that watch: clients of several versions, many of one session, one of each of many sessions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from ops.benchmark import load, processes
from ops.benchmark.figures import Figure
from ops.benchmark.load import Watched, local
from ops.benchmark.paced_model import tokens_of
from ops.benchmark.setting import BRISK, SETTLE_SECONDS, Bench, Row, Streams, gap_figure, watched_5
from ops.benchmark.watchers import V0_1, V0_9, V1_0, Dialect, Watcher, watching

_MIXES: Sequence[tuple[str, Sequence[Dialect]]] = (
    ("one version", (V1_0,)),
    ("two versions", (V1_0, V0_9)),
    ("three versions", (V1_0, V0_9, V0_1)),
)
_SPREAD = 3
"""Turns of many sessions start within three times as long as one takes, so a third of them run at the same time."""


@dataclass(slots=True)
class Delivered:
    """What watchers got, and the CPU time that the webs and all processes spent meanwhile."""

    watched: list[Watched] = field(default_factory=list)
    envelopes: int = 0
    web: float = 0.0
    all: float = 0.0

    @property
    def web_us(self) -> float:
        """Of an envelope."""
        return self.web / self.envelopes * 1e6

    @property
    def all_us(self) -> float:
        return self.all / self.envelopes * 1e6


def _web_seconds(bench: Bench) -> float:
    """By threads, whose times have a finer resolution than those of processes."""
    return sum(thread.cpu_seconds for thread in processes.threads(bench.installation.parts()["web"]).values())


def _web_kib(bench: Bench) -> float:
    return processes.pss_mib(bench.installation.parts()["web"]) * 1024


async def _sessions(bench: Bench, agent: str, count: int) -> list[str]:
    connection = await bench.ours.connection()
    try:
        return [await bench.ours.session(connection, agent) for _ in range(count)]
    finally:
        connection.close()


def watching_at(bench: Bench, agent: str, wanted: Sequence[tuple[str, Dialect]]) -> AbstractAsyncContextManager[list[Watcher]]:
    addresses = [local(port) for port in bench.installation.ports]
    return watching(addresses, bench.installation.key, agent, wanted)


async def add_turn(
    bench: Bench, delivered: Delivered, watchers: Sequence[Watcher], sessions: Sequence[str], tokens: int, spread: float = 0.0
) -> None:
    """One turn in each session, which the watchers alone read to the end; starts are spread evenly over ``spread`` seconds."""
    for watcher in watchers:
        watcher.expect()
    web, everything = _web_seconds(bench), bench.server.cpu_seconds()

    async def start(number: int, session: str) -> None:
        await asyncio.sleep(spread * number / len(sessions))
        await bench.ours.start(session)

    await asyncio.gather(*(start(number, session) for number, session in enumerate(sessions)))
    await asyncio.gather(*(watcher.ended() for watcher in watchers))
    await asyncio.sleep(SETTLE_SECONDS)
    delivered.web += _web_seconds(bench) - web
    delivered.all += bench.server.cpu_seconds() - everything
    delivered.envelopes += sum(watcher.envelopes for watcher in watchers)
    delivered.watched += [watcher.watched for watcher in watchers]
    load.check([watcher.watched for watcher in watchers], tokens)


async def _versions(bench: Bench) -> list[Figure]:
    """The same number of watchers of one session, of one version or in equal parts of two or three, in rotation."""
    figures = []
    for count in bench.size.mixed_watchers:
        found = {mix: Delivered() for mix, _ in _MIXES}
        for _ in range(bench.size.mixed_turns):
            for mix, dialects in _MIXES:
                sessions = await _sessions(bench, BRISK, 1)
                wanted = list(itertools.islice(itertools.cycle((sessions[0], dialect) for dialect in dialects), count))
                async with watching_at(bench, BRISK, wanted) as watchers:
                    await add_turn(bench, found[mix], watchers, sessions, tokens_of(BRISK))
        (_, one), *others = found.items()
        events = one.envelopes / count
        for mix, delivered in others:
            label = f"{count} watchers of {mix} (floor: of one)"
            more = (delivered.web - one.web) / events * 1e6
            figures += [
                Figure(f"CPU of web an envelope, {label}", "µs", delivered.web_us, one.web_us, decimals=2),
                Figure(f"CPU of web an event more than of one version, {count} watchers of {mix}", "µs", more),
            ]
    return figures


async def _watchers(bench: Bench) -> list[Figure]:
    streams, count = watched_5(bench.size), bench.size.watchers
    one = await _alone(bench, streams)
    sessions = await _sessions(bench, streams.model, 1)
    before = _web_kib(bench)
    async with watching_at(bench, streams.model, [(sessions[0], V1_0)] * count) as watchers:
        idle = _web_kib(bench) - before
        delivered = Delivered()
        await add_turn(bench, delivered, watchers, sessions, streams.tokens)
        after = _web_kib(bench) - before
    return _figures(f"{count:,} watchers of one session", delivered, one, idle / count, after / count)


async def _watched_sessions(bench: Bench) -> list[Figure]:
    streams, count = watched_5(bench.size), bench.size.watchers
    one = await _alone(bench, streams)
    sessions = await _sessions(bench, streams.model, count)
    before = _web_kib(bench)
    async with watching_at(bench, streams.model, [(session, V1_0) for session in sessions]) as watchers:
        idle = _web_kib(bench) - before
        delivered = Delivered()
        await add_turn(bench, delivered, watchers, sessions, streams.tokens, _SPREAD * streams.seconds)
        after = _web_kib(bench) - before
    return _figures(f"{count:,} sessions with a watcher each", delivered, one, idle / count, after / count)


async def _alone(bench: Bench, streams: Streams) -> Delivered:
    """A single watcher of a single session."""
    sessions = await _sessions(bench, streams.model, 1)
    delivered = Delivered()
    async with watching_at(bench, streams.model, [(sessions[0], V1_0)]) as watchers:
        await add_turn(bench, delivered, watchers, sessions, streams.tokens)
    return delivered


def _figures(what: str, delivered: Delivered, one: Delivered, idle_kib: float, kib: float) -> list[Figure]:
    compared = f"{what} (floor: a single watcher)"
    more = (delivered.web - one.web) / (delivered.envelopes - one.envelopes) * 1e6
    return [
        gap_figure(compared, delivered.watched, one.watched),
        Figure(f"CPU of web an envelope, {compared}", "µs", delivered.web_us, one.web_us),
        Figure(f"CPU of web an envelope more than to a single watcher, {what}", "µs", more),
        Figure(f"CPU of everything an envelope, {compared}", "µs", delivered.all_us, one.all_us),
        Figure(f"memory of web for each connection, {what}", "KiB", idle_kib),
        Figure(f"memory of web for each connection after a turn, {what}", "KiB", kib),
    ]


ROWS = (
    Row("ahp-versions", "watchers of a session of one, two and three versions of AHP", _versions),
    Row("ahp-watchers", "many AHP watchers of one session", _watchers),
    Row("ahp-sessions", "many sessions with one AHP watcher each", _watched_sessions),
)
