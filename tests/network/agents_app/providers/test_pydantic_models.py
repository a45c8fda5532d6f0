"""pydantic-ai's model classes as providers, against servers on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

from agents_app.errors import ProviderError
from agents_app.providers import pydantic_models
from agents_app.runtime.interface import ModelRequest, ProviderEvent, TextDelta, Usage
from agents_app.runtime.messages import Block, Message
from tests.fakes import steps
from tests.fakes.scripted_server import ScriptedServer, attempts
from tests.network.agents_app.providers.test_vendors import STRANGE
from tests.network.agents_app.providers.vendors import KEY, LIMITS, VENDORS, Vendor, request, said

# The libraries warn of models that their vendors are about to give up.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(params=VENDORS, ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    found: Vendor = request.param
    return replace(found, settings={})


@pytest.fixture
def server(vendor: Vendor) -> Iterator[ScriptedServer]:
    with vendor.serve() as serving:
        yield serving


def made(vendor: Vendor, url: str) -> Model:
    match vendor.name:
        case "anthropic":
            return AnthropicModel(vendor.model, provider=AnthropicProvider(api_key=KEY, base_url=url))
        case "google":
            return GoogleModel(vendor.model, provider=GoogleProvider(api_key=KEY, base_url=url))
        case _:
            return OpenAIResponsesModel(
                vendor.model,
                provider=OpenAIProvider(api_key=KEY, base_url=url),
                settings=OpenAIResponsesModelSettings(openai_store=False),
            )


@pytest.fixture
async def model(vendor: Vendor, server: ScriptedServer) -> AsyncIterator[Model]:
    async with made(vendor, server.url) as model:
        yield model


async def heard(model: Model, asked: ModelRequest) -> list[ProviderEvent]:
    return [event async for batch in pydantic_models.stream(model, asked) for event in batch]


async def test_calls_after_thinking_can_be_gone_on_with(vendor: Vendor, server: ScriptedServer, model: Model) -> None:
    script = server.script(
        [
            steps.usage(30, 7, cached=10),
            steps.thinking("I look."),
            steps.text("Looking."),
            steps.call("look", {"harbour": "Brest"}, pieces=3),
            steps.call("look", {"harbour": "Kiel"}, pieces=2),
        ],
        [steps.text("Both are full.")],
    )
    first = said(await heard(model, request(vendor, server, Message("user", script))))
    assert (first.thinking, first.text, first.reason) == ("I look.", "Looking.", "tool_calls")
    assert [(name, json.loads(arguments)) for _, name, arguments in first.calls] == [
        ("look", {"harbour": "Brest"}),
        ("look", {"harbour": "Kiel"}),
    ]
    assert first.usage == Usage(30, 7, 10)
    conversation = [Message("user", script), first.message(vendor.full_model)]
    conversation += [Message("tool", "full", tool_call_id=call) for call, _, _ in first.calls]
    again = said(await heard(model, request(vendor, server, *conversation)))
    assert (again.text, again.reason) == ("Both are full.", "stop")
    assert [asked.refused for asked in server.requests] == ["", ""]
    [kept] = first.opaque
    back = json.dumps(server.requests[1].body)
    seals = [part["signature"] for part in kept.data["response"]["parts"] if part.get("signature")]
    seals += [
        part["provider_details"]["thought_signature"]
        for part in kept.data["response"]["parts"]
        if "thought_signature" in (part.get("provider_details") or {})
    ]
    assert seals
    assert all(each in back or each.replace("+", "-").replace("/", "_") in back for each in seals)


@pytest.mark.parametrize("kind", STRANGE)
async def test_a_strange_history_is_taken(vendor: Vendor, server: ScriptedServer, model: Model, kind: str) -> None:
    found: list[ProviderEvent] = []
    with contextlib.suppress(ProviderError):
        found = await heard(model, request(vendor, server, *STRANGE[kind], Message("user", "and now?")))
    assert [asked.refused for asked in server.requests] == [""]
    assert said(found).text == "echo: and now?"


async def test_what_passes_is_tried_again_by_us_alone(vendor: Vendor, server: ScriptedServer, model: Model) -> None:
    script = server.script(attempts([steps.status(503, retry_after="0")], [steps.text("now")]))
    assert said(await heard(model, request(vendor, server, Message("user", script)))).text == "now"
    assert len(server.requests) == 2
    failing = server.script([steps.status(503, retry_after="0")])
    asked = request(vendor, server, Message("user", failing), limits=replace(LIMITS, retries=1))
    with pytest.raises(ProviderError):
        await heard(model, asked)
    assert len(server.requests) == 4


@pytest.mark.parametrize(("step", "fault"), [(steps.overflow(), "context_too_long"), (steps.status(401), "configuration")])
async def test_faults_are_sorted(vendor: Vendor, server: ScriptedServer, model: Model, step: steps.Step, fault: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await heard(model, request(vendor, server, Message("user", server.script([step]))))
    assert caught.value.fault == fault
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("rounds", [0, 1, 3, 30])
async def test_an_answer_that_is_left_is_closed(
    vendor: Vendor, server: ScriptedServer, model: Model, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the reader stands at that moment: so many rounds of the loop after its first event."""

    async def some_rounds(_: object) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    monkeypatch.setattr(pydantic_models._Reader, "_all_that_is_there", some_rounds)
    script = server.script([steps.text("half"), steps.hang()])
    stream = pydantic_models.stream(model, request(vendor, server, Message("user", script)))
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(server.wait_ended, server.requests[0]) == "closed"


async def test_a_flood_that_is_left_is_closed(
    vendor: Vendor, server: ScriptedServer, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = server.script([steps.text(*["a flood "] * 1_500), steps.hang()])
    # However slow this machine is.
    monkeypatch.setattr(pydantic_models, "SECONDS_TO_SETTLE", 60.0)
    stream = pydantic_models.stream(model, request(vendor, server, Message("user", script)))
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(server.wait_ended, server.requests[0]) == "closed"


async def test_images_are_never_fetched(vendor: Vendor, server: ScriptedServer, model: Model) -> None:
    blocks: list[Block] = [
        {"type": "text", "text": "look"},
        {"type": "image", "url": server.origin + "/a.png"},
        {"type": "image", "url": PIXEL},
    ]
    found = said(await heard(model, request(vendor, server, Message("user", blocks))))
    assert found.text.startswith("echo: ")
    assert server.connections <= 1
    sent = json.dumps(server.requests[0].body)
    assert server.origin + "/a.png" in sent


# --- a model of the operator's own ---


def speaking(*deltas: Any) -> FunctionModel:
    async def speak(_: list[theirs.ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        for delta in deltas:
            yield delta

    return FunctionModel(stream_function=speak)


def asked(*messages: Message) -> ModelRequest:
    return ModelRequest("m", "Be brief.", list(messages) or [Message("user", "hi")], limits=LIMITS)


async def test_what_is_there_comes_together() -> None:
    found = [batch async for batch in pydantic_models.stream(speaking(*["a"] * 500), asked())]
    assert found[0] == [TextDelta("a" * 500)]


async def test_more_than_anyone_took_yet_waits() -> None:
    found = [batch async for batch in pydantic_models.stream(speaking(*["a"] * 5_000), asked())]
    assert len(found) > 4
    assert said([event for batch in found for event in batch]).text == "a" * 5_000


async def test_whatever_a_model_raises_is_a_fault_without_its_words() -> None:
    async def speak(_: list[theirs.ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        yield "half"
        raise RuntimeError("the prompt was: secret")

    heard_: list[ProviderEvent] = []

    async def listen() -> None:
        async for batch in pydantic_models.stream(FunctionModel(stream_function=speak), asked()):
            heard_.extend(batch)

    with pytest.raises(ProviderError) as caught:
        await listen()
    assert (said(heard_).text, caught.value.fault) == ("half", "broken_stream")
    assert "secret" not in str(caught.value)


async def test_a_call_that_came_whole() -> None:
    model = speaking({0: DeltaToolCall("look", '{"a":1}', tool_call_id="c1")})
    found = said([event async for batch in pydantic_models.stream(model, asked()) for event in batch])
    assert found.calls == [("c1", "look", '{"a":1}')]


async def test_instructions_and_the_conversation_reach_the_model() -> None:
    seen: list[Sequence[theirs.ModelMessage]] = []

    async def speak(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append(messages)
        yield info.instructions or ""

    model = FunctionModel(stream_function=speak)
    conversation = [Message("user", "a"), Message("assistant", "b"), Message("system", "c"), Message("user", "d")]
    found = said([event async for batch in pydantic_models.stream(model, asked(*conversation)) for event in batch])
    assert found.text == "Be brief."
    assert [part.content for message in seen[0] for part in message.parts if hasattr(part, "content")] == ["a", "b", "c", "d"]
