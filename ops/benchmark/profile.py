"""`ops/bench --profile`: what a turn of one token costs, by process and thread."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis

from ops.benchmark import load, postgres_counts, processes, sockets
from ops.benchmark.installation import STORES, Installation
from ops.benchmark.setting import AT_ONCE, SETTLE_SECONDS, Bench, lines_of

NAMES = Path(__file__).resolve().parent / "thread_names"
"""Goes on the PYTHONPATH of processes whose threads are to have names."""
_STREAMS = (1, 20)
_ROWS = 25
_NUMBERS = re.compile(r"[-_ ]?\d+([-_]\d+)*( \(.*)?$")
"""What distinguishes the threads of one pool."""
_Place = tuple[str, str]
"""A part of the installation, and the name of a thread or of a Postgres process in it."""


@dataclass(slots=True)
class Cost:
    """What a place has cost: an amount, or so much for each turn."""

    cpu: float = 0.0
    waits: float = 0.0
    preemptions: float = 0.0

    def add(self, other: Cost, times: float = 1.0) -> None:
        self.cpu += other.cpu * times
        self.waits += other.waits * times
        self.preemptions += other.preemptions * times


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All costs until now: of each thread, the responses of stores to parts, and Redis's commands."""

    threads: dict[int, tuple[_Place, Cost]]
    responses: Counter[tuple[str, str]]
    commands: Counter[str]


def snapshot(installation: Installation) -> Snapshot:
    clients = _clients(installation)
    ports = {installation.postgres.port: "Postgres", installation.redis.port: "Redis"}
    threads: dict[int, tuple[_Place, Cost]] = {}
    responses: Counter[tuple[str, str]] = Counter()
    for part, pids in installation.parts().items():
        for number, thread in processes.threads(pids).items():
            place = part, _postgres_name(thread.pid, clients) if part == "Postgres" else thread_name(number, thread)
            threads[number] = place, Cost(thread.cpu_seconds, thread.waits, thread.preemptions)
        if part not in STORES and sockets.available():
            responses.update({(part, store): count for store, count in sockets.responses(pids, ports).items()})
    return Snapshot(threads, responses, _commands(installation))


def thread_name(number: int, thread: processes.Thread) -> str:
    """The same for all threads of a pool."""
    return "main" if number == thread.pid else _NUMBERS.sub("", thread.name) or thread.name


def _clients(installation: Installation) -> dict[int, str]:
    with installation.database() as connection:
        query = "select pid, coalesce(nullif(application_name, ''), usename) from pg_stat_activity where usename is not null"
        return dict(connection.execute(query).fetchall())


def _postgres_name(pid: int, clients: Mapping[int, str]) -> str:
    if pid in clients:
        return f"for {clients[pid]}"
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    return title.removeprefix("postgres: ").strip() if title.startswith("postgres: ") else "server"


def _commands(installation: Installation) -> Counter[str]:
    with redis.Redis.from_url(installation.redis.url()) as client:
        found = cast("dict[str, dict[str, Any]]", client.info("commandstats"))
    return Counter({name.removeprefix("cmdstat_"): int(stats["calls"]) for name, stats in found.items()})


def costs(before: Snapshot, loaded: Snapshot, idle: Snapshot, turns: int) -> dict[_Place, Cost]:
    """Of a turn, by place: what was spent up to ``loaded`` less what the idle server spent in the same time up to ``idle``."""
    found: dict[_Place, Cost] = {}
    for number, (place, _) in loaded.threads.items():
        total = found.setdefault(place, Cost())
        for earlier, later, sign in ((before, loaded, 1), (loaded, idle, -1)):
            if number in later.threads:
                total.add(later.threads[number][1], sign / turns)
                if number in earlier.threads:
                    total.add(earlier.threads[number][1], -sign / turns)
    return found


def _counted(before: Counter[Any], loaded: Counter[Any], idle: Counter[Any], turns: int) -> dict[Any, float]:
    return {name: (2 * loaded[name] - before[name] - idle[name]) / turns for name in loaded}


async def print_profile(bench: Bench) -> None:
    for streams in _STREAMS:
        for line in await _profile(bench, streams):
            print(line, flush=True)


async def _profile(bench: Bench, streams: int) -> list[str]:
    installation = bench.installation
    each = max(1, bench.size.counted_turns // streams)
    turns = each * streams
    async with lines_of(bench.ours, streams, AT_ONCE) as lines:
        load.check(await load.crowd(lines, 3, 0), 1)
        await asyncio.sleep(SETTLE_SECONDS)
        before, began = await asyncio.to_thread(snapshot, installation), time.monotonic()
        load.check(await load.crowd(lines, each, 0), 1)
        await asyncio.sleep(SETTLE_SECONDS)
        loaded, took = await asyncio.to_thread(snapshot, installation), time.monotonic() - began
        await asyncio.sleep(took)
        idle = await asyncio.to_thread(snapshot, installation)
        with postgres_counts.logged_statements(installation.postgres) as logged:
            load.check(await load.crowd(lines, each, 0), 1)
            await asyncio.sleep(SETTLE_SECONDS)
            statements = logged.by_client()
    title = "one after the other" if streams == 1 else f"{streams} at once"
    return [
        f"\n**A turn of one token, {title}**, {turns} turns\n",
        *cost_table(costs(before, loaded, idle, turns)),
        *_list("responses of stores, one for each round trip", _responses(before, loaded, idle, turns)),
        *_list("Redis's commands", _counted(before.commands, loaded.commands, idle.commands, turns)),
        *(line for name in sorted(statements) for line in _statements(name, statements[name], turns)),
    ]


def _responses(before: Snapshot, loaded: Snapshot, idle: Snapshot, turns: int) -> dict[str, float]:
    found = _counted(before.responses, loaded.responses, idle.responses, turns)
    return {f"{store} to {part}": count for (part, store), count in found.items()}


def cost_table(found: Mapping[_Place, Cost]) -> list[str]:
    """The most expensive first, within each part, after the part's sum."""
    lines = ["| | CPU, µs | voluntary switches | involuntary |", "|---|---|---|---|"]
    everything = Cost()
    for part in dict.fromkeys(part for part, _ in found):
        places = sorted(((name, cost) for (of, name), cost in found.items() if of == part), key=lambda each: -each[1].cpu)
        total = Cost()
        for _, cost in places:
            total.add(cost)
        everything.add(total)
        lines.append(_line(f"**{part}**", total))
        lines += [_line(f"{part}: {name}", cost) for name, cost in places if _matters(cost)]
    return [*lines, _line("**all**", everything)]


def _matters(cost: Cost) -> bool:
    return cost.cpu * 1e6 >= 1 or cost.waits + cost.preemptions >= 0.05


def _line(name: str, cost: Cost) -> str:
    return f"| {name} | {cost.cpu * 1e6:,.0f} | {cost.waits:.1f} | {cost.preemptions:.1f} |"


def _list(title: str, counts: Mapping[str, float]) -> list[str]:
    shown = sorted(((name, count) for name, count in counts.items() if count >= 0.05), key=lambda each: -each[1])
    return [f"\n{title}: " + ", ".join(f"{name} {count:.1f}" for name, count in shown)] if shown else []


def _statements(client: str, counts: Counter[str], turns: int) -> list[str]:
    lines = [f"\nstatements of {client}, {counts.total() / turns:.1f} a turn:\n", "```"]
    lines += [f"{count / turns:6.2f}  {' '.join(text.split())[:110]}" for text, count in counts.most_common(_ROWS)]
    return [*lines, "```"]
