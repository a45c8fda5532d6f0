"""Deltas that the consumer of an answer takes where they are received, without being yielded to its task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agents_app.errors import ProviderError
from agents_app.providers.openai_chat import OpenAIChat
from agents_app.runtime.interface import Finish, ProviderEvent, TextDelta, ToolCallDelta
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.fakes.odd_server import saying, server
from tests.network.agents_app.providers.test_openai_chat import LIMITS, chunk, request, text_in

AT_ONCE, YIELDED = "at once", "yielded"


class Consumer:
    """Takes lists of events at once as long as ``takes`` says so, and keeps all of them in their order."""

    def __init__(self, takes: Callable[[Sequence[ProviderEvent]], bool] = lambda _events: True) -> None:
        self.got: list[tuple[str, ProviderEvent]] = []
        self._takes = takes

    def take(self, events: Sequence[ProviderEvent]) -> bool:
        if not self._takes(events):
            return False
        self.got += [(AT_ONCE, event) for event in events]
        return True

    async def hear(self, url: str, text: str = "hello", between_outputs: float = 90.0) -> None:
        limits = replace(LIMITS, retries=0, between_outputs=between_outputs)
        async for batch in OpenAIChat().stream(request(url, text, limits=limits, at_once=self.take)):
            self.got += [(YIELDED, event) for event in batch]

    @property
    def text(self) -> str:
        return text_in([event for _, event in self.got])

    def ways(self, kind: type) -> set[str]:
        return {way for way, event in self.got if isinstance(event, kind)}


def words(count: int) -> list[steps.Step]:
    return [steps.text(f"w{number} ") for number in range(count)]


async def test_deltas_after_the_first_are_taken_at_once_and_what_ends_the_answer_is_yielded(model: ModelServer) -> None:
    consumer = Consumer()
    await consumer.hear(model.url, model.script([*words(20), steps.finish("stop")]))
    assert consumer.text == "".join(f"w{number} " for number in range(20))
    assert consumer.got[0][0] == YIELDED
    assert isinstance(consumer.got[-1][1], Finish)
    assert consumer.ways(Finish) == {YIELDED}


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
async def test_however_the_answer_is_cut_into_pieces_every_event_comes_once_and_in_order(size: int) -> None:
    """A consumer that refuses every third list, as if it had to wait then."""
    asked = iter(range(10_000))
    whole = b"".join(chunk({"content": f"{number}."}) for number in range(60))
    whole += chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}) + chunk({}, "stop")
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    consumer = Consumer(lambda _events: next(asked) % 3 > 0)
    async with server(saying(*pieces, b"data: [DONE]\n\n")) as url:
        await consumer.hear(url)
    assert consumer.text == "".join(f"{number}." for number in range(60))
    assert [event for _, event in consumer.got if isinstance(event, ToolCallDelta)] == [ToolCallDelta(0, "c", "f", "{}")]
    assert isinstance(consumer.got[-1][1], Finish)


async def said_slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Each piece is read before the next one comes, in chunks of HTTP."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(10):
        data = chunk({"content": f"{number}"})
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_a_task_is_woken_for_no_delta_that_is_taken_at_once() -> None:
    """The connection ends without the end of the answer, which is found out as without a consumer."""
    consumer = Consumer()
    async with server(said_slowly) as url:
        with pytest.raises(ProviderError) as caught:
            await consumer.hear(url)
    assert caught.value.fault == "broken_stream"
    assert consumer.text == "0123456789"
    assert [way for way, _ in consumer.got].count(YIELDED) == 1


async def test_an_error_after_deltas_that_were_taken_breaks_the_stream() -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await said_slowly(reader, writer)
        writer.write(b"11\r\ndata: {not json\n\n\r\n")
        await writer.drain()
        await reader.read()

    consumer = Consumer()
    async with server(broken) as url:
        with pytest.raises(ProviderError) as caught:
            await consumer.hear(url)
    assert caught.value.fault == "broken_stream"
    assert consumer.text == "0123456789"


async def test_a_model_that_falls_silent_after_deltas_that_were_taken_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await said_slowly(reader, writer)
        await reader.read()

    consumer = Consumer()
    async with server(silent) as url:
        with pytest.raises(ProviderError) as caught:
            await consumer.hear(url, between_outputs=2.0)
    assert caught.value.fault == "timeout"
    assert consumer.text == "0123456789"


async def test_an_error_of_the_consumer_is_raised_in_its_own_task(model: ModelServer) -> None:
    def fails(_events: Sequence[ProviderEvent]) -> bool:
        raise LookupError("of the consumer")

    consumer = Consumer(fails)
    async with server(said_slowly) as url:
        with pytest.raises(LookupError, match="of the consumer"):
            await consumer.hear(url)
    assert consumer.ways(TextDelta) == {YIELDED}


async def test_a_cancelled_consumer_closes_the_call_while_deltas_are_taken() -> None:
    heard, closed = asyncio.Event(), asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await said_slowly(reader, writer)
        await reader.read()
        closed.set()

    def takes(events: Sequence[ProviderEvent]) -> bool:
        if "9" in text_in(events):
            heard.set()
        return True

    async with server(endless) as url, asyncio.timeout(60):
        task = asyncio.create_task(Consumer(takes).hear(url))
        await heard.wait()
        task.cancel()
        await asyncio.wait([task])
        await closed.wait()
