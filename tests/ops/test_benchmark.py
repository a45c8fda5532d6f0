"""ops/bench: what its figures are made of. The measurement itself is run by hand, on a machine that does nothing else."""

from __future__ import annotations

import asyncio
import os

import pytest

from ops.benchmark import load, measure, table
from ops.benchmark.installation import model_server
from ops.benchmark.load import Connection, Floor, LoadError, Watched
from ops.benchmark.measure import Figure
from ops.benchmark.paced_model import model


class Heard(asyncio.Transport):
    """Takes what is written and says nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


async def test_the_model_server_keeps_the_pace_it_is_named_for() -> None:
    with model_server() as port:
        lines = await Floor(port).lines(2, model(6, 50))
        watched = await load.crowd(lines, 2, 0.0)
        load.close(lines)
    load.check(watched, 6)
    assert len(watched) == 4
    assert all(each.first >= 0.019 for each in watched)
    assert all(each.ended - each.asked >= 6 / 50 - 0.001 for each in watched)


async def test_an_unpaced_answer_brings_all_its_tokens() -> None:
    with model_server() as port:
        lines = await Floor(port).lines(3, model(1234, 0))
        watched = await load.crowd(lines, 1, 0.0)
        load.close(lines)
    load.check(watched, 1234)


async def test_tokens_are_counted_however_the_stream_is_cut() -> None:
    head, body = b"HTTP/1.1 200 OK\r\n\r\n", b'7\r\n{" token token"}\r\n' * 3 + b"0\r\n\r\n"
    for size in (1, 2, 5, 7, 11, len(body)):
        connection = Connection()
        connection.connection_made(Heard())
        watching = asyncio.ensure_future(connection.watch(b""))
        await asyncio.sleep(0)
        for piece in (head, *(body[at : at + size] for at in range(0, len(body), size))):
            connection.data_received(piece)
        assert (await asyncio.wait_for(watching, 5)).tokens == 6, size


async def test_a_refusal_is_no_figure() -> None:
    with model_server() as port:
        lines = await Floor(port).lines(1, "unknown")
        with pytest.raises(LoadError, match="404"):
            await load.crowd(lines, 1, 0.0)
        load.close(lines)


def test_a_stream_that_lost_tokens_is_no_figure() -> None:
    with pytest.raises(LoadError, match="4 tokens instead of 5"):
        load.check([Watched(0.0, tokens=5), Watched(0.0, tokens=4)], 5)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert measure.percentile(range(1, 101), 0.95) == 95
    assert measure.percentile([7.0], 0.99) == 7.0


def test_a_line_of_the_table_says_median_spread_ratio_and_verdict() -> None:
    runs = [[Figure("TTFT", "ms", ours, floor, at_most=33)] for ours, floor in ((30.0, 20.0), (36.0, 20.0), (31.0, 25.0))]
    assert table.rows(measure.collect(runs)) == ["| TTFT | ms | 20.0 | 31.0 (30.0–36.0) | 1.50 | <= 33 | yes |"]


@pytest.mark.skipif(not measure.available(), reason="the figures of processes stand in /proc")
def test_a_process_has_used_time_and_memory() -> None:
    assert measure.cpu_seconds([os.getpid()]) > 0
    assert measure.resident_mib([os.getpid()]) > 1
