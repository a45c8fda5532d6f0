"""Objects in the operator's code as providers: what they say, how they are bounded, stopped and left."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from agents_app import exact_json
from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool
from agents_app.providers import python
from agents_app.python_agent import Request, Result
from agents_app.runtime.interface import (
    Finish,
    Limits,
    ModelRequest,
    Opaque,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.runtime.messages import Message
from tests.fakes import python_agents as fakes

HERE = "tests.fakes.python_agents"


def asked(name: str, messages: Sequence[Message] = (Message("user", "21"),), **given: Any) -> ModelRequest:
    return ModelRequest(f"{HERE}:{name}", "", messages, full_model=f"python:{HERE}:{name}", **given)


async def said(request: ModelRequest, values: Mapping[str, str] | None = None) -> list[ProviderEvent]:
    provider = python.Python().for_run(values or {}, FairPool(2), None)
    async with asyncio.timeout(90), aclosing(provider.stream(request)) as stream:  # type: ignore[type-var]
        return [event async for batch in stream for event in batch]


async def text_of(request: ModelRequest, values: Mapping[str, str] | None = None) -> str:
    return "".join(event.text for event in await said(request, values) if isinstance(event, TextDelta))


async def test_what_an_agent_yields_becomes_events() -> None:
    assert await said(asked("Counter")) == [
        ThinkingDelta("a number?"),
        Usage(3, 4),
        ToolCallDelta(0, None, "double", '{"x":21}'),
        Finish("tool_calls"),
    ]


async def test_an_agent_hears_of_results_and_of_what_it_wanted_to_know_again() -> None:
    call = {"type": "tool_use", "toolCallId": "c", "name": "double", "input": {"x": 21}}
    kept = exact_json.dumps({"model": f"python:{HERE}:Counter", "items": [{"part": "state", "data": 1}]})
    history = [
        Message("user", "20"),
        Message("assistant", "40, for the 1th time", provider_data=kept),
        Message("user", "21"),
        Message("assistant", [call]),
        Message("tool", "42", tool_call_id="c"),
    ]
    assert await said(asked("Counter", history)) == [
        TextDelta("42, "),
        TextDelta("for the 2th time"),
        Opaque("state", 2),
        Finish("stop"),
    ]


def test_results_are_those_of_the_last_calls_in_their_order() -> None:
    calls = [{"type": "tool_use", "toolCallId": name, "name": f"tool_{name}", "input": {"n": name}} for name in "ab"]
    results = [Message("tool", f"from {name}", tool_call_id=name) for name in ("a", "b", "not asked for")]

    def request(*messages: Message) -> Request:
        return Request("", messages, (), {}, {}, Limits(), "python:m:a")

    assert request(Message("user", "x"), Message("assistant", calls), *results).results == [
        Result("tool_a", {"n": "a"}, "from a"),
        Result("tool_b", {"n": "b"}, "from b"),
    ]
    assert request(Message("assistant", calls), *results, Message("user", "y")).results == []
    assert request().results == []
    assert request().text == ""


async def test_a_state_of_another_agent_is_not_shown() -> None:
    kept = exact_json.dumps({"model": "python:other:Agent", "items": [{"part": "state", "data": 1}]})
    assert asked("Counter", [Message("assistant", "x", provider_data=kept)]).messages
    request = Request("", [Message("assistant", "x", provider_data=kept)], (), {}, {}, Limits(), "python:m:a")
    assert request.state is None


async def test_options_instructions_and_settings_reach_the_agent_and_no_repr() -> None:
    request = asked("Mirror", settings={"s": 1})
    assert await text_of(request, {"pin": "1234"}) == "|{'pin': '1234'}|{'s': 1}|[]|1"
    made = Request("", (), (), {}, {"pin": "1234"}, Limits(), "")
    assert "1234" not in repr(made)


async def test_a_plain_generator_speaks_from_a_thread() -> None:
    fakes.InThreads.threads.clear()
    assert await text_of(asked("InThreads")) == "one two"
    assert threading.current_thread().name not in fakes.InThreads.threads


async def test_one_instance_serves_all() -> None:
    assert python.resolve(f"{HERE}:InThreads") is python.resolve(f"{HERE}:InThreads")
    assert await text_of(asked("ready_made")) == "made beforehand"


async def test_an_agent_may_end_the_turn_with_a_reason() -> None:
    assert (await said(asked("Refuses")))[-1] == Finish("refusal")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Breaks", "Breaks.respond raised"),
        ("Exits", "Exits.respond raised"),
        ("ExitsInThreads", "ExitsInThreads.respond raised"),
        ("Nonsense", "Nonsense.respond yielded a int, which is not supported"),
        ("NoJson", "NoJson.respond yielded a value without a JSON form"),
    ],
)
async def test_what_goes_wrong_in_an_agent_is_a_fault_without_its_words(name: str, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await said(asked(name, [Message("user", "my secret")]))
    assert caught.value.fault == "broken_stream"
    assert words in caught.value.detail
    assert "secret" not in caught.value.detail


async def test_what_was_said_before_a_fault_is_heard() -> None:
    stream = python.Python().stream(asked("Breaks"))
    assert await anext(stream) == [TextDelta("half")]
    with pytest.raises(ProviderError):
        await anext(stream)


async def test_an_agent_that_says_nothing_is_out_of_time_and_told_to_stop() -> None:
    fakes.Silent.begun, fakes.Silent.stopped = asyncio.Event(), asyncio.Event()
    with pytest.raises(ProviderError) as caught:
        await said(asked("Silent", limits=Limits(first_output=0.01)))
    assert caught.value.fault == "timeout"
    assert fakes.Silent.stopped.is_set()


async def test_an_agent_that_falls_silent_in_the_middle_is_out_of_time() -> None:
    stream = python.Python().stream(asked("Pauses", limits=Limits(first_output=90, between_outputs=0.01)))
    async with asyncio.timeout(60):
        assert await anext(stream) == [TextDelta("word")]
        with pytest.raises(ProviderError) as caught:
            await anext(stream)
    assert caught.value.fault == "timeout"


async def test_a_cancelled_run_stops_its_agent() -> None:
    fakes.Silent.begun, fakes.Silent.stopped = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(said(asked("Silent")))
    async with asyncio.timeout(90):
        await fakes.Silent.begun.wait()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()
    assert fakes.Silent.stopped.is_set()


async def test_an_agent_that_does_not_stop_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "SECONDS_TO_CLOSE", 0.01)
    fakes.Stubborn.free, fakes.Stubborn.told = asyncio.Event(), asyncio.Event()
    try:
        with caplog.at_level(logging.WARNING):
            stream = python.Python().stream(asked("Stubborn"))
            assert await anext(stream) == [TextDelta("word")]
            async with asyncio.timeout(90):
                await stream.aclose()  # type: ignore[attr-defined]
                await fakes.Stubborn.told.wait()
        assert "Stubborn: its method respond did not stop" in caplog.text
    finally:
        # Or its task would outlive a failed test, and keep the loop from closing.
        fakes.Stubborn.free.set()
        async with asyncio.timeout(90):
            while python._left_behind:
                await asyncio.wait(list(python._left_behind))


async def test_a_plain_generator_that_is_given_up_in_its_thread_is_closed_there() -> None:
    release, closed = threading.Event(), threading.Event()

    def slow() -> Any:
        try:
            yield "one"
            release.wait(60)
            yield "two"
        finally:
            closed.set()

    # Held, so that nobody but the thread closes it.
    said = slow()

    class Slow:
        def respond(self, request: Request) -> Any:
            return said

    python._found["slow:Slow"] = Slow()
    try:
        stream = python.Python().for_run({}, FairPool(2), None).stream(ModelRequest("slow:Slow", "", ()))
        async with asyncio.timeout(90):
            assert await anext(stream) == [TextDelta("one")]
            await stream.aclose()  # type: ignore[attr-defined]
            release.set()
            await asyncio.to_thread(closed.wait, 60)
        assert closed.is_set()
    finally:
        del python._found["slow:Slow"]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("no_such_module:Agent", "cannot import no_such_module: no such module"),
        (f"{HERE}:Nothing", f"the module {HERE} has no Nothing"),
        (f"{HERE}:double", "neither a pydantic_ai.Agent or Model nor a class with a method respond"),
        (f"{HERE}:without_a_model", "its agent has no model object"),
    ],
)
async def test_a_process_without_the_code_says_what_it_lacks(reference: str, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await said(ModelRequest(reference, "", ()))
    assert caught.value.fault == "configuration"
    assert words in caught.value.detail


@pytest.mark.parametrize(("name", "text"), [("on_a_model", "said by the model"), ("model", "said by the model alone")])
async def test_the_librarys_models_are_asked_through_their_adapter(name: str, text: str) -> None:
    assert await text_of(asked(name)) == text
