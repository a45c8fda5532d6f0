"""The spans of a run's model calls and tools, and that a delta costs none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from agents_app import tracing
from agents_app.errors import Answered, ProviderError, ToolFailed
from agents_app.runtime import loop, traces
from agents_app.runtime.interface import Finish, TextDelta, Usage
from agents_app.tracing import Context, Span, Tracing
from tests.pure.agents_app.runtime.test_loop import Host, Provider, Tools, asked, both_ways, plan

SENT = Context("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)


@pytest.fixture
def ended() -> Iterator[list[Span]]:
    """The spans that have ended; tracing is on."""
    spans: list[Span] = []
    tracing.install(Tracing(spans.append))
    yield spans
    tracing.install(None)


async def run(provider: Provider, tools: Tools | None = None) -> None:
    with tracing.span("run", parent=SENT):
        await loop.run(plan(provider, tools), Host(), 0)


@both_ways
@pytest.mark.parametrize("on", [True, False])
async def test_a_delta_costs_no_call_of_tracing(make: type[Provider], on: bool, ended: list[Span]) -> None:
    if not on:
        tracing.install(None)
    files = {tracing.__file__, traces.__file__}

    async def calls(deltas: int) -> int:
        count = 0

        def note(frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event == "call" and frame.f_code.co_filename in files

        provider = make([*[TextDelta("x")] * deltas, Usage(1, 1), Finish("stop")])
        sys.setprofile(note)
        try:
            await run(provider)
        finally:
            sys.setprofile(None)
        return count

    few = await calls(2)
    assert few > 0
    assert await calls(500) == few


async def test_a_step_has_its_model_call_and_its_tools(ended: list[Span]) -> None:
    async def tide() -> str:
        return "high"

    async def broken() -> str:
        raise ToolFailed("a reason with a secret")

    calls = [asked("tide", "c1"), asked("broken", "c2", 1), Usage(7, 3, 2), Finish("tool_calls")]
    await run(Provider(calls, [TextDelta("Hi."), Finish("stop")]), Tools(tide=tide, broken=broken))
    names = [each.name for each in ended]
    assert sorted(names) == sorted(["chat m", "execute_tool tide", "execute_tool broken", "step", "chat m", "step", "run"])
    first = ended[0]
    assert first.attributes["gen_ai.usage.input_tokens"] == 7
    assert first.attributes["gen_ai.usage.cache_read.input_tokens"] == 2
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    failed = next(each for each in ended if each.name == "execute_tool broken")
    assert (failed.error, failed.attributes["gen_ai.tool.call.id"]) == ("tool_failed", "c2")
    assert "secret" not in str([each.attributes for each in ended])


async def test_a_failed_model_call_has_the_facts_of_its_failure(ended: list[Span]) -> None:
    error = ProviderError("unavailable", "a detail with a secret", Answered(503, "overloaded", attempts=3))
    await run(Provider([error]))
    call = ended[0]
    assert call.error == "unavailable"
    assert (call.attributes["http.response.status_code"], call.attributes["agenthost.attempts"]) == (503, 3)
    assert "secret" not in str(call.attributes)


@pytest.mark.parametrize(
    ("model", "name"),
    [("openai-chat:gpt", "openai"), ("google-vertex:g", "gcp.vertex_ai"), ("anthropic:c", "anthropic"), ("groq:x", "groq")],
)
def test_providers_have_the_names_of_the_conventions(model: str, name: str) -> None:
    assert traces.provider_name(model) == name
