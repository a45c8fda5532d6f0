"""The agent loop against a host that records what it is told, and a provider that says what it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

import pytest

from agents_app.compaction import TooLong
from agents_app.errors import ProviderError, RunLost, ToolFailed
from agents_app.runtime import loop
from agents_app.runtime.interface import (
    Ask,
    Call,
    FileEdit,
    Finish,
    FormAnswer,
    Limits,
    ModelRequest,
    Opaque,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.runtime.messages import Content, Message, ToolSchema
from agents_app.runtime.size_limits import MessageSize, SizeLimitReached, SizeLimits
from agents_app.testkit.host import MemoryHost
from tests import costs

Step = list[Any]
"""What the model says to one request: provider events, an exception, or something to be awaited."""


class Provider:
    """Says one script after the other; ``closed`` counts the streams that came to their end."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[ModelRequest] = []
        self.closed = 0

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        self.requests.append(request)
        return self._say(self.steps.pop(0))

    async def _say(self, step: Step) -> AsyncGenerator[list[ProviderEvent]]:
        try:
            for each in step:
                if isinstance(each, Exception):
                    raise each
                if isinstance(each, asyncio.Event):
                    await each.wait()
                else:
                    yield [each]
        finally:
            self.closed += 1


class Live(Provider):
    """Offers everything after the first event to the run at once, and yields what it does not take."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return self._offer(super().stream(request), request)

    async def _offer(
        self, answer: AsyncIterator[list[ProviderEvent]], request: ModelRequest
    ) -> AsyncGenerator[list[ProviderEvent]]:
        assert request.at_once is not None
        async with aclosing(answer) as batches:  # type: ignore[type-var]  # it is a generator
            yield await anext(batches)
            async for batch in batches:
                if request.at_once(batch):
                    self.taken += len(batch)
                else:
                    yield batch

    taken = 0


both_ways = pytest.mark.parametrize("make", [Provider, Live])
"""Every event is yielded, or taken at once where the run allows it."""


class Tools:
    """Tools by name: what they do."""

    def __init__(self, **tools: Callable[..., Awaitable[Content]]) -> None:
        self._tools = tools
        self.again: set[str] = set()

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        return [ToolSchema(name, "") for name in self._tools]

    def has(self, name: str) -> bool:
        return name in self._tools

    def idempotent(self, name: str) -> bool:
        return name in self.again

    async def preview(self, name: str, arguments: Mapping[str, Any]) -> Sequence[FileEdit]:
        return ()

    async def run(self, name: str, arguments: Mapping[str, Any], ask: Ask | None = None) -> Content:
        return await self._tools[name](**arguments)


class Host(MemoryHost):
    """Loses its turn, or has no room for it, where a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_at = ""
        self.too_long = False

    def note(self, name: str, *facts: Any) -> None:
        super().note(name, *facts)
        if name == self.lost_at:
            raise RunLost

    async def model_messages(self) -> Sequence[Message]:
        if self.too_long:
            raise TooLong(2, 1, [])
        return await super().model_messages()

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        self.note("ask", call.call_id)
        return await super().ask(call, form)


def plan(provider: Provider, tools: Tools | None = None, **given: Any) -> loop.Plan:
    fields: dict[str, Any] = {
        "provider": provider,
        "full_model": "test:m",
        "model": "m",
        "instructions": "",
        "settings": {},
        "api_key": "sk-secret",
        "base_url": None,
        "headers": {"X-Key": "sk-secret"},
        "limits": Limits(max_steps=3),
        "tools": tools or Tools(),
        "tool_schemas": [],
        "why_free": lambda name: "" if name.startswith("ask") else "setting",
        "client_tools": {"theirs": None},
        "provider_failed": lambda error: None,
    }
    return loop.Plan(**{**fields, **given})


def asked(name: str, call_id: str = "c", index: int = 0, arguments: str = "{}") -> ToolCallDelta:
    return ToolCallDelta(index, call_id, name, arguments)


async def nothing() -> str:
    return "ok"


# --- how a turn ends ---


@both_ways
async def test_text_ends_the_turn_with_its_message(make: type[Provider]) -> None:
    host, provider = Host(), make([ThinkingDelta("hm"), TextDelta("a"), TextDelta("b"), Usage(3, 2), Finish("stop")])
    await loop.run(plan(provider), host, 0)
    assert host.names == ["step_started", "part_opened", "delta", "part_opened", "delta", "delta", "message_done"]
    assert host.said[-1] == ("message_done", "end_turn", "")
    message = host.messages[0]
    assert (message.text, message.thinking, message.usage) == ("ab", "hm", Usage(3, 2))
    assert message.parts == [("1.0", "thinking", "hm"), ("1.1", "text", "ab")]


async def test_a_silent_model_ends_the_turn_too() -> None:
    host = Host()
    await loop.run(plan(Provider([Finish("tool_calls")])), host, 0)
    assert host.said[-1] == ("message_done", "end_turn", "")


@pytest.mark.rule("A63")
async def test_a_tools_result_goes_to_the_next_step() -> None:
    host, provider = Host(), Provider([asked("t"), Finish("tool_calls")], [TextDelta("x"), Finish("stop")])
    await loop.run(plan(provider, Tools(t=nothing)), host, 0)
    assert host.names == [
        *("step_started", "call_opened", "call_arguments", "message_done", "call_running", "call_finished"),
        *("step_started", "part_opened", "delta", "message_done"),
    ]
    assert host.results == {"c": "ok"}


@pytest.mark.rule("A85")
@pytest.mark.parametrize("end", [ProviderError("unavailable"), None])
async def test_a_broken_message_keeps_its_text_and_none_of_its_calls(end: ProviderError | None) -> None:
    failures: list[ProviderError] = []
    host = Host()
    step = [TextDelta("half"), asked("t"), *([end] if end else [])]
    await loop.run(plan(Provider(step), Tools(t=nothing), provider_failed=failures.append), host, 0)
    assert host.said[-1] == ("message_done", "error", "provider_failed")
    message = host.messages[0]
    assert (message.text, message.calls, message.broken) == ("half", [], True)
    assert [kind for _, kind, _ in message.parts] == ["text", "call"]
    assert message.given_up == {"c": "t"}
    assert [failure.fault for failure in failures] == ["unavailable" if end else "broken_stream"]


@pytest.mark.rule("A86")
@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
async def test_a_cut_answer_drops_its_calls(reason: Literal["max_tokens", "refusal"]) -> None:
    host = Host()
    await loop.run(plan(Provider([TextDelta("x"), asked("t"), Finish(reason)]), Tools(t=nothing)), host, 0)
    assert host.said[-1] == ("message_done", reason, "")
    assert host.messages[0].calls == []


@pytest.mark.rule("A86")
async def test_a_context_that_is_too_long_is_max_tokens() -> None:
    host = Host()
    await loop.run(plan(Provider([ProviderError("context_too_long")])), host, 0)
    assert host.said[-1] == ("message_done", "max_tokens", "")
    host = Host()
    host.too_long = True
    await loop.run(plan(Provider()), host, 0)
    assert host.names == ["end"]
    assert host.said[-1] == ("end", "max_tokens", "")


@pytest.mark.rule("A87")
async def test_the_steps_of_earlier_runs_count() -> None:
    host, provider = Host(), Provider([asked("t", "a"), Finish("tool_calls")])
    await loop.run(plan(provider, Tools(t=nothing)), host, 2)
    assert host.said[-1] == ("end", "error", "too_many_steps")
    assert len(provider.requests) == 1


@pytest.mark.parametrize("where", ["step_started", "delta", "message_done", "call_running", "call_finished", "wait"])
async def test_a_lost_run_says_nothing_more_and_closes_its_stream(where: str) -> None:
    host, provider = Host(), Provider([TextDelta("x"), asked("t", "a"), asked("theirs", "b", 1), Finish("tool_calls")])
    host.lost_at = where
    with pytest.raises(RunLost):
        await loop.run(plan(provider, Tools(t=nothing)), host, 0)
    assert host.said[-1][0] == where
    assert provider.closed == len(provider.requests) - (where == "step_started" and len(provider.requests))


# --- parts ---


@pytest.mark.rule("A57", "A58")
@both_ways
async def test_thinking_after_text_is_late_and_in_the_parts_alone(make: type[Provider]) -> None:
    host = Host()
    step = [ThinkingDelta("1"), TextDelta("2"), ThinkingDelta("3"), ThinkingDelta("5"), TextDelta("4"), Finish("stop")]
    await loop.run(plan(make(step)), host, 0)
    message = host.messages[0]
    assert (message.thinking, message.text) == ("1", "24")
    assert [text for _, _, text in message.parts] == ["1", "2", "35", "4"]
    assert [each[3] for each in host.said if each[0] == "delta"] == [False, False, True, True, False]


async def test_only_a_delta_that_continues_the_open_part_is_taken_at_once() -> None:
    host = Host()
    provider = Live(
        [TextDelta("a"), TextDelta("b"), ThinkingDelta("c"), ThinkingDelta("d"), TextDelta(""), Usage(1, 1), Finish("stop")]
    )
    await loop.run(plan(provider), host, 0)
    assert provider.taken == 2
    assert [each[2] for each in host.said if each[0] == "delta"] == ["a", "b", "c", "d"]


@pytest.mark.rule("A10", "A96")
@both_ways
async def test_halves_of_a_character_are_joined_and_lone_ones_replaced(make: type[Provider]) -> None:
    host = Host()
    step = [
        *(
            TextDelta("a\ud83d"),
            ThinkingDelta("t"),
            TextDelta("\ude00b"),
            TextDelta("c\0"),
            TextDelta("\udc00"),
            TextDelta("\ud83d"),
        ),
        *(ToolCallDelta(0, "c", "theirs", '{"n":"\ud83d'), ToolCallDelta(0, arguments='\ude00"}'), Finish("tool_calls")),
    ]
    await loop.run(plan(make(step)), host, 0)
    message = host.messages[0]
    assert message.text == "a\U0001f600bc\ufffd\ufffd\ufffd"
    assert message.calls[0].arguments == '{"n":"\U0001f600"}'
    assert "".join(each[2] for each in host.said if each[0] == "call_arguments") == '{"n":"\U0001f600"}'
    deltas = [each[2] for each in host.said if each[0] == "delta" and each[2] != "t"]
    assert "".join(deltas) == message.text
    assert "" not in deltas


async def test_calls_stand_in_the_order_of_their_numbers_whatever_jumps() -> None:
    host = Host()
    step = [
        *(asked("theirs", "later", 7), asked("theirs", "first", 2, '{"a":'), ToolCallDelta(2, arguments="1}")),
        *(asked("theirs", "first", 9), asked("", "nameless", 11), Finish("stop")),
    ]
    await loop.run(plan(Provider(step)), host, 0)
    calls = host.messages[0].calls
    assert [call.call_id for call in calls][:2] == ["first", "later"]
    assert calls[0].arguments == '{"a":1}'
    assert host.results == {"nameless": "Tool not found: "}


async def test_a_provider_that_counts_nonsense_breaks_no_sum() -> None:
    host = Host()
    await loop.run(plan(Provider([Usage(10**30, -5, 1), Finish("stop")])), host, 0)
    assert host.messages[0].usage == Usage(10**12, 0, 1)


# --- tools ---


@pytest.mark.rule("A63", "A73")
async def test_tools_run_side_by_side_and_what_is_left_waits() -> None:
    both = asyncio.Barrier(2)

    async def meet() -> str:
        await both.wait()
        return "met"

    host = Host()
    step = [
        *(asked("meet", "a", 0), asked("meet", "b", 1), asked("theirs", "k", 2), asked("nowhere", "n", 3)),
        *(asked("meet", "bad", 4, "[1]"), asked("ask_me", "q", 5), Finish("tool_calls")),
    ]
    provider = Provider(step)
    async with asyncio.timeout(90):
        await loop.run(plan(provider, Tools(meet=meet, ask_me=nothing)), host, 0)
    assert host.results == {
        "a": "met",
        "b": "met",
        "n": "Tool not found: nowhere",
        "bad": "Tool execution failed: the arguments are not a JSON object",
    }
    assert host.said[-1] == ("wait",)
    assert len(provider.requests) == 1


@pytest.mark.rule("A73")
@pytest.mark.parametrize("inner", ["[" * 2_000_000 + "]" * 2_000_000, "0," * 1_000_000 + "0", "[" * 200 + "]" * 200])
async def test_arguments_of_too_many_members_or_levels_are_no_arguments(inner: str) -> None:
    """They are parsed in the loop that all runs of a worker share."""
    host = Host()
    start = time.process_time()
    provider = Provider([asked("echo", "a", 0, f'{{"x":[{inner}]}}'), Finish("tool_calls")], [TextDelta("So."), Finish("stop")])
    await loop.run(plan(provider, Tools(echo=nothing)), host, 0)
    assert host.results == {"a": "Tool execution failed: the arguments are not a JSON object"}
    # Far less on a quiet machine; parsing them and telling what is wrong takes seconds.
    assert time.process_time() - start < 25 * costs.reading_numbers()


async def test_a_grant_runs_at_once_while_another_tool_still_runs() -> None:
    slow, begun = asyncio.Event(), asyncio.Event()

    async def linger() -> str:
        begun.set()
        await slow.wait()
        return "slow"

    host = Host()
    step = [asked("linger", "a"), asked("ask_me", "q", 1), Finish("tool_calls")]
    provider = Provider(step, [Finish("stop")])
    running = asyncio.create_task(loop.run(plan(provider, Tools(linger=linger, ask_me=nothing)), host, 0))
    async with asyncio.timeout(90):
        await begun.wait()
        host.decide("q", "granted")
        await host.heard("call_finished")
        assert list(host.results) == ["q"]
        slow.set()
        await running
    assert [each for each in host.said if each[0] == "call_running"] == [("call_running", "a"), ("call_running", "q")]


async def test_an_answer_that_comes_at_the_last_moment_is_looked_at_again() -> None:
    class Late(Host):
        async def wait(self) -> bool:
            self.decide("k", "done")
            return await super().wait()

    host, provider = Late(), Provider([asked("theirs", "k"), Finish("tool_calls")], [TextDelta("x"), Finish("stop")])
    await loop.run(plan(provider), host, 0)
    assert host.said[-1] == ("message_done", "end_turn", "")


@pytest.mark.rule("A66")
@pytest.mark.parametrize("again", [False, True])
async def test_a_call_found_running_is_run_again_only_if_that_is_harmless(again: bool) -> None:
    host, tools = Host(), Tools(t=nothing)
    host.calls["c"] = Call("c", "t", "{}", "server", "running")
    tools.again = {"t"} if again else set()
    await loop.run(plan(Provider([Finish("stop")]), tools), host, 1)
    assert host.results == {"c": "ok" if again else "Tool execution failed: interrupted, it may have run"}


@pytest.mark.rule("A72")
async def test_a_tool_that_fails_is_a_result() -> None:
    async def fail() -> str:
        raise ToolFailed("no wind\0")

    host = Host()
    await loop.run(plan(Provider([asked("fail"), Finish("tool_calls")], [Finish("stop")]), Tools(fail=fail)), host, 0)
    assert host.results == {"c": "Tool execution failed: no wind\ufffd"}
    assert ("call_finished", "c", True) in host.said


async def test_one_lost_write_stops_the_tools_beside_it() -> None:
    stopped = asyncio.Event()

    async def linger() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    host = Host()
    host.lost_at = "call_finished"
    step = [asked("linger", "a"), asked("t", "b", 1), Finish("tool_calls")]
    with pytest.raises(RunLost):
        await loop.run(plan(Provider(step), Tools(linger=linger, t=nothing)), host, 0)
    assert stopped.is_set()


# --- cancellation ---


@pytest.mark.rule("A121")
async def test_cancelling_closes_the_providers_stream_before_the_run_is_over() -> None:
    host, provider = Host(), Provider([TextDelta("x"), asyncio.Event()])
    running = asyncio.create_task(loop.run(plan(provider), host, 0))
    await host.heard("delta")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert provider.closed == 1
    assert "message_done" not in host.names


@pytest.mark.rule("A121")
@pytest.mark.parametrize("moment", range(12))
@pytest.mark.parametrize("news", ["answer", "result"])
async def test_a_cancel_at_the_moment_of_any_news_is_not_lost(news: str, moment: int) -> None:
    """At every round of the event loop after the news, for the cancel may meet any of the run's waits."""
    begun, ready, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def linger() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async def quick() -> str:
        await ready.wait()
        return ""

    host = Host()
    step = [asked("linger", "a"), asked("theirs", "k", 1), asked("quick", "b", 2), Finish("tool_calls")]
    running = asyncio.create_task(loop.run(plan(Provider(step), Tools(linger=linger, quick=quick)), host, 0))
    async with asyncio.timeout(90):
        await begun.wait()
        if news == "answer":
            host.decide("k", "done")
        else:
            ready.set()
        for _ in range(moment):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=30)
        assert running.cancelled(), "the run goes on although it was cancelled"
    assert stopped.is_set()


def test_a_plan_shows_no_secret() -> None:
    assert "sk-secret" not in repr(plan(Provider()))


# --- how much is stored ---


@pytest.mark.rule("A86", "A100")
@both_ways
async def test_a_message_without_end_is_cut_and_its_provider_closed(make: type[Provider]) -> None:
    """1,500 deltas of 60 KB: nobody holds, stores or shows more of them than a message may have."""
    host = Host()
    provider = make([*([TextDelta("é" * 30_000)] * 1_500), Finish("stop")])
    await loop.run(plan(provider, size_limits=SizeLimits(message=1_000_000)), host, 0)
    assert host.said[-1] == ("message_done", "max_tokens", "")
    (message,) = host.messages
    assert 999_000 < len(message.text.encode()) <= 1_000_000
    assert "".join(fact[2] for fact in host.said if fact[0] == "delta") == message.text
    assert provider.closed == 1
    assert message.broken


@pytest.mark.rule("A86")
@pytest.mark.parametrize(
    "step",
    [
        [TextDelta("a"), *([asked("t", "c", 0, '{"x":"' + "y" * 5_000)] * 30), Finish("tool_calls")],
        [TextDelta("a"), *(asked("t", f"c{number}", number) for number in range(2_000)), Finish("tool_calls")],
        [TextDelta("a"), *([ThinkingDelta("x"), TextDelta("")] * 1), *([Opaque("p", "z" * 5_000)] * 30), Finish("stop")],
        [TextDelta("a"), *([ThinkingDelta("b"), TextDelta("a")] * 5_000), Finish("stop")],
    ],
    ids=["arguments", "calls", "opaque parts", "parts"],
)
async def test_whatever_a_message_grows_by_is_counted(step: Step) -> None:
    host, provider = Host(), Provider(step)
    await loop.run(plan(provider, Tools(t=nothing), size_limits=SizeLimits(message=100_000)), host, 0)
    assert host.said[-1] == ("message_done", "max_tokens", "")
    (message,) = host.messages
    assert message.text.startswith("a")
    assert message.calls == []
    assert len(message.parts) < 300
    assert host.results == {}
    assert provider.closed == 1


@pytest.mark.rule("A87")
async def test_a_turn_ends_with_error_where_its_messages_have_its_size() -> None:
    host = Host()
    call = [TextDelta("x" * 40_000), asked("t", "a"), Finish("tool_calls")]
    provider = Provider(call, [TextDelta("y" * 80_000), Finish("stop")])
    await loop.run(plan(provider, Tools(t=nothing), size_limits=SizeLimits(left=100_000)), host, 0)
    assert host.said[-1] == ("message_done", "error", "turn_too_large")
    assert len(host.messages[0].text) + len(host.messages[1].text) <= 100_000
    assert host.messages[1].text.startswith("y" * 50_000)
    assert provider.closed == 2


@pytest.mark.rule("A72", "A87")
async def test_a_result_that_is_larger_than_what_is_left_of_its_turn_is_not_stored() -> None:
    async def large() -> str:
        return "x" * 60_000

    host = Host()
    calls = [asked("large", "a", 0), asked("large", "b", 1), Finish("tool_calls")]
    provider = Provider(calls, [TextDelta("never"), Finish("stop")])
    await loop.run(plan(provider, Tools(large=large), size_limits=SizeLimits(left=100_000)), host, 0)
    assert sorted(map(str, host.results.values()))[0].startswith("Tool execution failed: its result is larger")
    assert sorted(map(len, host.results.values())) == [len(loop.NO_ROOM), 60_000]
    assert host.said[-1] == ("end", "error", "turn_too_large")
    assert len(provider.requests) == 1


def test_text_is_cut_between_characters_and_never_beyond_the_limit() -> None:
    filling = MessageSize(SizeLimits(message=7))
    assert filling.fit("éé") == "éé"
    assert filling.fit("👩x") == ""
    with pytest.raises(SizeLimitReached) as full:
        filling.check()
    assert full.value.bound == "message"
