"""The provider ``openai-chat`` against what known servers make of the format, as bytes on a socket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from agents_app import providers
from agents_app.errors import ProviderError
from agents_app.runtime.interface import (
    Finish,
    Limits,
    ModelRequest,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.runtime.messages import Message
from tests.fakes.odd_server import saying, server
from tests.network.agents_app.providers.chat_quirks import DONE, OTHERS, OVERFLOWS, STREAMS, Call, Quirk, delta


@dataclass
class Understood:
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    finish: str = ""
    fault: str = ""


async def understood(url: str) -> Understood:
    request = ModelRequest(
        model="m",
        instructions="",
        messages=[Message("user", "hello")],
        base_url=url,
        limits=Limits(connect=60.0, first_output=90.0, between_outputs=90.0, retries=0),
    )
    provider = providers.find("openai-chat")
    assert provider is not None
    events: list[ProviderEvent] = []
    found = Understood()
    try:
        async for batch in provider.stream(request):
            events += batch
    except ProviderError as error:
        found.fault = error.fault
    found.text = "".join(event.text for event in events if isinstance(event, TextDelta))
    found.thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    found.calls = calls_in(events)
    usages = [event for event in events if isinstance(event, Usage)]
    assert len(usages) < 2
    found.usage = usages[0] if usages else None
    found.finish = "".join(event.reason for event in events if isinstance(event, Finish))
    return found


def calls_in(events: Sequence[ProviderEvent]) -> tuple[Call, ...]:
    calls: dict[int, Call] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            assert event.index in calls or event.name is not None, "a name comes with the first piece"
            call_id, name, arguments = calls.get(event.index, (event.id, event.name or "", ""))
            calls[event.index] = (call_id, name, arguments + event.arguments)
    return tuple(calls[index] for index in sorted(calls))


@pytest.mark.parametrize("size", [0, 3], ids=["whole", "cut"])
@pytest.mark.parametrize("quirk", STREAMS, ids=lambda quirk: str(quirk.name))
async def test_a_servers_own_way_is_understood(quirk: Quirk, size: int) -> None:
    step = size or max(1, len(quirk.wire))
    pieces = [quirk.wire[at : at + step] for at in range(0, len(quirk.wire), step)]
    async with server(saying(*pieces, kind=quirk.kind, status=quirk.status)) as url:
        found = await understood(url)
    expected = Understood(quirk.text, quirk.thinking, quirk.calls, quirk.usage, "" if quirk.fault else quirk.finish, quirk.fault)
    assert found == expected


@pytest.mark.rule("A86")
@pytest.mark.parametrize("name", OVERFLOWS)
async def test_a_conversation_that_is_too_long_is_known_by_each_servers_words(name: str) -> None:
    status, document = OVERFLOWS[name]
    async with server(saying(json.dumps(document).encode(), kind="application/json", status=status)) as url:
        assert (await understood(url)).fault == "context_too_long"


@pytest.mark.rule("A84")
@pytest.mark.parametrize("name", OTHERS)
async def test_what_a_server_refuses_is_sorted_by_its_own_words(name: str) -> None:
    status, document, fault = OTHERS[name]
    async with server(saying(json.dumps(document).encode(), kind="application/json", status=status)) as url:
        assert (await understood(url)).fault == fault


async def test_what_arrives_together_is_one_delta_of_each_kind() -> None:
    wire = delta(reasoning="h") + delta(reasoning="m") + delta(content="o") + delta(content="k") + delta("stop") + DONE
    async with server(saying(wire)) as url:
        request = ModelRequest("m", "", [Message("user", "hello")], base_url=url, limits=replace(Limits(), retries=0))
        provider = providers.find("openai-chat")
        assert provider is not None
        first = await anext(aiter(provider.stream(request)))
    assert first == [ThinkingDelta("hm"), TextDelta("ok")]
