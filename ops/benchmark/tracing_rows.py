"""What tracing costs: turns and tokens without it, with traces that are not sampled, and with all of them sent to a collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from ops import services
from ops.benchmark.figures import Figure
from ops.benchmark.installation import Installation, Shape, installed
from ops.benchmark.load import LoadError
from ops.benchmark.setting import Bench, Cpu, Row, Streams, models, ms, started, steady_200, warm_up

_STARTS_A_SECOND = 20
_MODES: Mapping[str, Mapping[str, str]] = {
    "off": {},
    "none sampled": {"OTEL_TRACES_SAMPLER": "always_off"},
    "all sampled": {"OTEL_TRACES_SAMPLER": "always_on"},
}
_EXPORTED_AFTER = 6.0
"""Seconds after which a batch that began during the load has been sent (OTEL_BSP_SCHEDULE_DELAY is 5 s)."""


class _Cost(NamedTuple):
    turn: float
    token: float


class Collector:
    """Takes spans and counts their bytes. It runs in the benchmark's process, whose CPU is not measured."""

    def __init__(self) -> None:
        self.received = 0
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for writer in self._open:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                self.received += len(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
        self._open.discard(writer)
        writer.close()


async def _tracing(bench: Bench) -> list[Figure]:
    """The floor is the server that does not trace, measured first. It is measured once more, which shows the noise."""
    collector = bench.kept.setdefault("collector", Collector())
    async with collector.serving():
        costs = {}
        for mode in (*_MODES, "off again"):
            there = await _there(bench, mode.removesuffix(" again"), collector.port)
            before = collector.received
            costs[mode] = await _cost(there)
            if (collector.received > before) != (mode == "all sampled"):
                raise LoadError(f"tracing {mode}: the collector received {collector.received - before:,} bytes")
    off = costs.pop("off")
    return [
        figure
        for mode, cost in costs.items()
        for figure in (
            Figure(f"CPU a turn of 1 token, tracing {mode} (floor: off)", "ms", ms(cost.turn), ms(off.turn), decimals=2),
            Figure(f"CPU of each token more, tracing {mode} (floor: off)", "µs", cost.token * 1e6, off.token * 1e6),
        )
    ]


async def _there(bench: Bench, mode: str, collector: int) -> Bench:
    """The bench of an installation that traces so; later runs use it again."""
    name = f"tracing {mode}"
    if name not in bench.kept:
        home = bench.home / name.replace(" ", "-")
        home.mkdir(mode=0o711)
        to = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}", **_MODES[mode]} if _MODES[mode] else {}
        shape = Shape(bench.root, settings=to)
        starting = installed(home, bench.model_port, models(bench.size), shape, services.Postgres(home, crash_safe=True))
        installation: Installation = await asyncio.to_thread(bench.stack.enter_context, starting)
        bench.kept[name] = Bench(bench.size, home, installation, bench.model_port, bench.stack, bench.say, bench.root)
        await warm_up(bench.kept[name])
    found: Bench = bench.kept[name]
    return found


async def _cost(bench: Bench) -> _Cost:
    """Of a turn of one token, and of each token more, with the spans that are sent after the load."""
    starts = round(_STARTS_A_SECOND * bench.size.paced_seconds)
    one, longer = Streams(20, 20, 1), steady_200(bench.size)
    spent = []
    for streams in (one, longer):
        cpu = Cpu(bench)
        await started(bench.target, streams, starts, _STARTS_A_SECOND)
        await asyncio.sleep(_EXPORTED_AFTER)
        spent.append(sum((await cpu.spent()).values()) / starts)
    return _Cost(spent[0], (spent[1] - spent[0]) / (longer.tokens - one.tokens))


ROWS = (Row("tracing", "CPU of a turn and of a token: without traces, with none and with all sampled", _tracing),)
