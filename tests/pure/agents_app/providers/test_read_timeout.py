"""The moving time limit of a stream."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from agents_app.providers.read_timeout import ReadTimeout


def reader() -> aiohttp.StreamReader:
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    # One that is open; nothing goes over it.
    protocol.connection_made(asyncio.Transport())
    return aiohttp.StreamReader(protocol, 2**16, loop=loop)


async def test_a_read_that_waits_beyond_the_deadline_ends() -> None:
    content = reader()
    timeout = ReadTimeout(content)
    timeout.start(asyncio.get_running_loop().time() + 0.02)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(content.readany(), 90)


async def test_a_deadline_that_moved_on_is_the_one_that_counts() -> None:
    loop, content = asyncio.get_running_loop(), reader()
    timeout = ReadTimeout(content)
    began = loop.time()
    timeout.start(began + 0.02)
    timeout.stop()
    timeout.start(began + 0.15)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(content.readany(), 90)
    assert loop.time() - began >= 0.14


async def test_a_nearer_deadline_does_not_wait_for_the_one_before() -> None:
    loop, content = asyncio.get_running_loop(), reader()
    timeout = ReadTimeout(content)
    began = loop.time()
    timeout.start(began + 60)
    timeout.stop()
    timeout.start(began + 0.02)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(content.readany(), 90)
    timeout.close()
    assert loop.time() - began < 30


async def test_the_time_in_which_nothing_is_waited_for_does_not_count() -> None:
    loop, content = asyncio.get_running_loop(), reader()
    timeout = ReadTimeout(content)
    timeout.start(loop.time() + 0.01)
    timeout.stop()
    over = asyncio.Event()
    loop.call_later(0.03, over.set)
    await over.wait()
    assert content.exception() is None
    content.feed_data(b"word")
    assert await content.readany() == b"word"
