"""Rows about streams: time to the first token, gaps between deltas, CPU a turn and a token."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from ops.benchmark import load
from ops.benchmark.figures import Figure
from ops.benchmark.load import Aap, Chat, Target
from ops.benchmark.setting import (
    BURST,
    BURST_STREAMS,
    BURST_TOKENS,
    SINGLE,
    Bench,
    Cpu,
    Row,
    Streams,
    first_figures,
    gap_figure,
    lines_of,
    ms,
    started,
    started_floor,
    steady_50,
    steady_200,
    streamed,
    streamed_floor,
)

_STARTS_A_SECOND = 40
_ANY = (Aap, Chat)


async def first_delta(bench: Bench) -> list[Figure]:
    floor = None if bench.floor is None else await _first_ms(bench, bench.floor)
    cpu = Cpu(bench)
    ours = await _first_ms(bench, bench.target)
    return [
        Figure("first delta, 1 stream", "ms", ours, floor, decimals=2),
        *([] if floor is None else [Figure("added to it", "ms", ours - floor, beside_at_most=0.45, decimals=2)]),
        *await cpu.figures(bench.size.single_turns, "turn of 5 deltas", 1e3, "ms"),
    ]


async def _first_ms(bench: Bench, target: Target) -> float:
    async with lines_of(target, 1, SINGLE) as lines:
        watched = await load.in_turn(lines[0], bench.size.single_turns)
    target.check(watched, 5)
    return ms(median(each.first for each in watched))


async def _steady_50(bench: Bench) -> list[Figure]:
    streams = steady_50(bench.size)
    floor = await streamed_floor(bench, streams)
    ours = await streamed(bench.target, streams)
    what = "50 streams x 50 tokens/s"
    return [*first_figures(what, ours, floor), gap_figure(what, ours, floor)]


async def _steady_200(bench: Bench) -> list[Figure]:
    streams = steady_200(bench.size)
    floor = await streamed_floor(bench, streams)
    cpu = Cpu(bench)
    ours = await streamed(bench.target, streams)
    what = "200 streams x 20 tokens/s, turns of 100"
    p50, p95 = first_figures(what, ours, floor)
    tokens = sum(each.tokens for each in ours)
    used = await cpu.figures(tokens, f"token, {what}, starts included", 1e6, "µs")
    memory = bench.server.memory_mib()
    return [
        replace(p50, over_floor=18),
        replace(p95, over_floor=60),
        replace(gap_figure(what, ours, floor), at_most=72),
        *(replace(each, beside_at_most=0.55 if number == 0 else None) for number, each in enumerate(used)),
        *([Figure("memory of the server after it, PSS", "MiB", memory)] if memory else []),
    ]


def _short(bench: Bench) -> Streams:
    return Streams(50, 50, 10, bench.size.short_turns)


async def _many_starts(bench: Bench) -> list[Figure]:
    """Streams that are short, so that starts are most of the work: each line starts its next turn when one has ended."""
    streams = _short(bench)
    floor = await streamed_floor(bench, streams)
    cpu, began = Cpu(bench), time.monotonic()
    ours = await streamed(bench.target, streams)
    rate = len(ours) / (time.monotonic() - began)
    what = "50 streams x 10 tokens"
    p50, p95 = first_figures(what, ours, floor)
    return [
        replace(p50, at_most=50),
        replace(p95, at_most=75),
        Figure(f"turns, {what}", "a second", rate),
        *await cpu.figures(len(ours), f"turn, {what}", 1e3, "ms"),
    ]


async def _turn_cpu(bench: Bench) -> list[Figure]:
    """CPU of a turn as a straight line through turns of 1 and of 100 tokens, both started 40 times a second."""
    starts = round(_STARTS_A_SECOND * bench.size.paced_seconds)
    one, longer = Streams(20, 20, 1), Streams(250, 20, 100)
    floor = await started_floor(bench, one, starts, _STARTS_A_SECOND)
    cost = []
    watched = []
    for streams in (one, longer):
        cpu = Cpu(bench)
        watched.append(await started(bench.target, streams, starts, _STARTS_A_SECOND))
        cost.append(sum((await cpu.spent()).values()) / starts)
    what = f"{_STARTS_A_SECOND} starts/s of 1 token"
    figures = first_figures(what, watched[0], floor)
    if not bench.server.parts():
        return figures
    slope = (cost[1] - cost[0]) / (longer.tokens - one.tokens)
    return [
        *figures,
        Figure(f"CPU a turn, {what}", "ms", ms(cost[0]), decimals=2),
        Figure("CPU of a turn's start and end", "ms", ms(cost[0] - slope), at_most=5, decimals=2),
        Figure("CPU of each token more", "µs", slope * 1e6),
    ]


async def _part_load(bench: Bench) -> list[Figure]:
    """Turns of 10 tokens at a share of the rate that the server reached without pause."""
    if "capacity" not in bench.kept:
        streams = Streams(50, 50, 10, bench.size.short_turns)
        began = time.monotonic()
        watched = await streamed(bench.target, streams)
        bench.kept["capacity"] = len(watched) / (time.monotonic() - began)
    figures = [Figure("turns of 10 tokens without pause, 50 at once", "a second", bench.kept["capacity"])]
    for share in (20, 80):
        rate = bench.kept["capacity"] * share / 100
        starts = max(10, round(rate * bench.size.paced_seconds))
        streams = Streams(100, 50, 10)
        floor = await started_floor(bench, streams, starts, rate)
        ours = await started(bench.target, streams, starts, rate)
        figures += first_figures(f"turns of 10 tokens at {share} % of it", ours, floor)
    return figures


async def burst_rate(target: Target, streams: int, name: str, tokens: int) -> float:
    async with lines_of(target, streams, name) as lines:
        began = time.monotonic()
        watched = await load.crowd(lines, 1, 0)
    target.check(watched, tokens)
    return streams * tokens / (max(each.ended for each in watched) - began)


async def _burst(bench: Bench) -> list[Figure]:
    floor = None if bench.floor is None else await burst_rate(bench.floor, BURST_STREAMS, BURST, BURST_TOKENS)
    cpu = Cpu(bench)
    ours = await burst_rate(bench.target, BURST_STREAMS, BURST, BURST_TOKENS)
    return [
        Figure("burst, 50 streams x 400 tokens", "tokens/s", ours, floor, at_least=60_000, decimals=0),
        *await cpu.figures(BURST_STREAMS * BURST_TOKENS, "token of the burst", 1e6, "µs"),
    ]


ROWS = (
    Row("first-delta", "added time to the first delta with 1 stream", first_delta, _ANY),
    Row("streams-50", "50 streams x 50 tokens/s: TTFT, gaps", _steady_50, _ANY),
    Row("streams-200", "200 streams x 20 tokens/s in turns of 100: TTFT, gaps, CPU a token", _steady_200, _ANY),
    Row("many-starts", "50 streams x 10 tokens: TTFT, turns a second, CPU a turn", _many_starts, _ANY),
    Row("turn-cpu", "40 starts a second: TTFT, CPU of a turn and of each token more", _turn_cpu, _ANY),
    Row("part-load", "TTFT at 20 % and 80 % of the rate that the server reaches", _part_load, _ANY),
    Row("burst", "50 streams x 400 tokens, unpaced", _burst, _ANY),
)
