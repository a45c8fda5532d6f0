"""Rows about what is written beside turns: the index of words, and the audit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from ops.benchmark.figures import Figure
from ops.benchmark.setting import Bench, Row

_PROBE = Path(__file__).with_name("record_probe.py")


async def _probe(bench: Bench, kind: str, number: int) -> dict[str, float]:
    out = await asyncio.to_thread(bench.installation.checkout.run_script, _PROBE.read_text(), kind, str(number))
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


async def _search(bench: Bench) -> list[Figure]:
    count = bench.size.searched
    found = await _probe(bench, "search", count)
    return [
        Figure(f"words of a million messages on disk, table (measured with {count:,})", "MiB", found["table"], decimals=0),
        Figure("words of a million messages on disk, index", "MiB", found["index"], decimals=0),
        Figure(f"search among {count:,} messages, p50", "ms", found["p50"]),
        Figure(f"search among {count:,} messages, p95", "ms", found["p95"], at_most=100),
        Figure("words of one message written (floor: without the index)", "ms", found["with"], found["without"], decimals=2),
    ]


async def _audit(bench: Bench) -> list[Figure]:
    found = await _probe(bench, "audit", bench.size.key_changes)
    return [
        Figure("key changes in one tenant, 8 at once (floor: unrecorded)", "ms", found["with"], found["without"], decimals=2),
        Figure("of these, time waiting for a lock", "%", found["waits"], found["waits_without"]),
        Figure("one audit record written", "ms", found["record"], decimals=2),
        Figure("CPU of the process for one audit record", "ms", found["cpu"], decimals=2),
        Figure("audit records linked", "a second", found["linked"], decimals=0),
    ]


ROWS = (
    Row("search", "the index of words: disk, writing, searching", _search),
    Row("audit", "a burst of key changes in one tenant, and linking its records", _audit),
)
