"""How many cores, gigabytes and disks a load needs: a model of the measured costs.

    ops/scale --turns-per-second 40 --tokens 300 --tokens-per-second 50 --watchers 2 --idle-streams 1000

What a turn and a token cost falls with their rate, because what arrives while a step is under way shares the next one: a claim, a
write of the journal, an announcement. The costs are those of docs/performance.md, on its machine with nothing else at work.
`MEASURED` are the points that the model has to reproduce; a test compares them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

# Start and end of a turn, in ms of CPU: alone, and what is left of it when it shares every step.
TURN_ALONE, TURN_SHARED = 8.5, 1.66
TURN_WINDOW = 0.0111
"""Seconds for which a turn's steps collect others."""
# A token, in µs of CPU: alone, and when a flush carries many.
TOKEN_ALONE, TOKEN_SHARED = 1600.0, 105.0
TOKEN_WINDOW = 0.010

SHARES = {"web": 0.284, "worker": 0.441, "postgres": 0.255, "redis": 0.020}
"""Of all CPU, at 200 streams."""
SESSION_CREATED = 0.5
"""ms of CPU."""
WATCHER = 9.0
"""µs of web's CPU for an event that one further AHP watcher of a session gets."""
IDLE_STREAM_CPU, IDLE_STREAM_KIB = 0.036, 29.0
"""ms of CPU a second, and memory, for a stream or connection on which nothing happens."""
STREAMING_TURN_KIB = 210.0
PROCESS_MIB = {"web": 62.0, "worker": 57.0}
"""PSS of one of two forked processes."""
EVENT_BYTES, WAL_BYTES = 189.0, 300.0
TURN_BYTES = 4500.0
"""Rows and durable events of a turn with its two messages, besides their text."""
BUSY = 0.6
"""The share of a core that is planned for, so that a burst does not make everybody wait."""


def turn_ms(rate: float, together: float = 1.0) -> float:
    """CPU of a turn's start and end, at so many a second, of which ``together`` arrive at once."""
    return TURN_SHARED + (TURN_ALONE - TURN_SHARED) / max(1.0 + rate * TURN_WINDOW, together)


def token_us(rate: float) -> float:
    """CPU of a token at so many a second in one installation."""
    return TOKEN_SHARED + (TOKEN_ALONE - TOKEN_SHARED) / (1.0 + rate * TOKEN_WINDOW)


@dataclass(frozen=True)
class Load:
    turns: float
    """A second."""
    tokens: float
    """Of a turn."""
    pace: float = 50.0
    """Tokens a second of a model."""
    created: float = 0.0
    """Sessions a second."""
    watchers: float = 0.0
    """AHP watchers of a session besides the client that reads its turn."""
    idle: float = 0.0
    """Streams and connections on which nothing happens."""

    @property
    def streams(self) -> float:
        """Turns that stream at the same time."""
        return self.turns * self.tokens / self.pace

    @property
    def tokens_per_second(self) -> float:
        return self.turns * self.tokens


@dataclass(frozen=True)
class Need:
    cores: dict[str, float]
    """Busy, by role."""
    memory_gib: dict[str, float]
    disk_gb_a_day: float
    """Stored a day, before retention: stream events are kept for a day and a half at most."""
    wal_mb_a_second: float
    processes: dict[str, int]


def need(load: Load, slower: float = 1.0) -> Need:
    """``slower``: how much slower the machine is than that of docs/performance.md."""
    tokens = load.tokens_per_second
    busy = load.turns * turn_ms(load.turns) / 1e3 + tokens * token_us(tokens) / 1e6 + load.created * SESSION_CREATED / 1e3
    cores = {role: busy * share * slower for role, share in SHARES.items()}
    cores["web"] += (load.idle * IDLE_STREAM_CPU / 1e3 + tokens * load.watchers * WATCHER / 1e6) * slower
    processes = {role: max(2, -int(-cores[role] // BUSY)) for role in ("web", "worker")}
    streaming = load.streams * STREAMING_TURN_KIB / 1024**2 / 2
    memory = {role: processes[role] * PROCESS_MIB[role] / 1024 + streaming for role in processes}
    memory["web"] += (load.idle + load.streams * load.watchers) * IDLE_STREAM_KIB / 1024**2
    stored = tokens * EVENT_BYTES + load.turns * TURN_BYTES
    wal = tokens * WAL_BYTES + load.turns * TURN_BYTES * 1.6
    return Need(cores, memory, stored * 86400 / 1e9, wal / 1e6, processes)


MEASURED: dict[str, tuple[float, float]] = {
    # What was measured, and what the model says.
    "CPU of a turn of one token, one after the other, ms": (8.5, turn_ms(0)),
    "the same, 20 at once, ms": (2.0, turn_ms(0, together=20)),
    "CPU of a turn's start and end, 40 starts a second, ms": (6.4, turn_ms(40)),
    "CPU a token, 200 streams x 20 tokens/s, turns of 100, µs": (204.0, token_us(4000) + turn_ms(40) * 1e3 / 100),
    "CPU a turn, 50 streams x 10 tokens, 267 turns a second, ms": (4.6, turn_ms(267) + 10 * token_us(2670) / 1e3),
    # On a machine that adds 1.3 times as much to a first delta.
    "slower machine: CPU of a turn of 5 deltas, one after the other, ms": (20.0, 1.3 * (turn_ms(0) + 4 * token_us(0) / 1e3)),
    "slower machine: CPU a token, 200 streams, µs": (250.0, 1.3 * (token_us(4000) + turn_ms(40) * 1e3 / 100)),
    "slower machine: CPU a turn, 50 streams x 10 tokens, 196 a second, ms": (6.2, 1.3 * (turn_ms(196) + token_us(1960) / 100)),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="ops/scale", description="What a load needs, by the measured costs (docs/scaling.md).")
    parser.add_argument("--turns-per-second", type=float, required=True, help="at the busiest time")
    parser.add_argument("--tokens", type=float, default=300.0, help="of an answer (default: %(default)g)")
    parser.add_argument("--tokens-per-second", type=float, default=50.0, help="of one model (default: %(default)g)")
    parser.add_argument("--sessions-per-second", type=float, default=0.0, help="that are created (default: %(default)g)")
    parser.add_argument("--watchers", type=float, default=0.0, help="further AHP clients of a session (default: %(default)g)")
    parser.add_argument("--idle-streams", type=float, default=0.0, help="on which nothing happens (default: %(default)g)")
    parser.add_argument(
        "--slower",
        type=float,
        default=1.0,
        help="factor of this machine: its CPU a turn in `ops/bench --only turn-cpu`, divided by 6.4",
    )
    given = parser.parse_args()
    load = Load(
        given.turns_per_second,
        given.tokens,
        given.tokens_per_second,
        given.sessions_per_second,
        given.watchers,
        given.idle_streams,
    )
    found = need(load, given.slower)
    print(f"{load.streams:,.0f} turns stream at the same time, {load.tokens_per_second:,.0f} tokens a second")
    for role, cores in found.cores.items():
        started = f"   start {found.processes[role]}" if role in found.processes else ""
        memory = f"   {found.memory_gib[role]:6.1f} GiB" if role in found.memory_gib else " " * 13
        print(f"{role:9} {cores:8.2f} busy cores{memory}{started}")
    print(f"disk      {found.disk_gb_a_day:8.1f} GB stored a day, {found.wal_mb_a_second:.1f} MB/s of WAL")


if __name__ == "__main__":
    main()
