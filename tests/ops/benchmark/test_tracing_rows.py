"""The benchmark's collector: it counts what it takes, and leaves no connection open."""

from __future__ import annotations

import aiohttp

from ops.benchmark.tracing_rows import Collector


async def test_the_collector_counts_what_is_sent_over_one_connection() -> None:
    collector = Collector()
    async with collector.serving(), aiohttp.ClientSession() as client:
        address = f"http://127.0.0.1:{collector.port}/v1/traces"
        for body in (b"spans", b"more spans"):
            async with client.post(address, data=body) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
        assert collector.received == len(b"spansmore spans")
    async with collector.serving():
        assert collector.port == int(address.partition("127.0.0.1:")[2].partition("/")[0])
