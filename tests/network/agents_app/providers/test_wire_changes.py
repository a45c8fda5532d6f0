"""A conversation that goes on with another vendor's model: taken by all, with nothing in it that was for the first alone."""

from __future__ import annotations

import json

import pytest

from agents_app.runtime import opaque
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.network.agents_app.providers.loop_host import Conversation
from tests.network.agents_app.providers.vendors import VENDORS, Vendor

CHAT = Vendor("openai-chat", "gpt-test", lambda: ModelServer(strict=True), {}, "length", "content_filter")
ALL = [*VENDORS, CHAT]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


async def look(harbour: str = "") -> list[dict[str, str]]:
    return [{"type": "text", "text": f"full in {harbour}"}, {"type": "image", "url": PIXEL}]


@pytest.mark.parametrize("second", ALL, ids=lambda vendor: vendor.name)
@pytest.mark.parametrize("first", ALL, ids=lambda vendor: vendor.name)
async def test_a_conversation_goes_on_with_another_model_and_comes_back(first: Vendor, second: Vendor) -> None:
    script = [
        [steps.thinking("Secretly."), steps.text("Looking."), steps.call("look", {"harbour": "Brest"}), steps.call("look", {})],
        [steps.thinking("Again."), steps.call("look", {"harbour": "Kiel"})],
        [steps.text("Full.")],
    ]
    with first.serve() as one, second.serve() as other:
        conversation = Conversation(one, look=look)
        await conversation.turn(one.script(*script), first.full_model, settings=first.settings)
        written = [message.provider_data for message in conversation.messages if message.provider_data is not None]
        assert bool(written) is (first is not CHAT)
        later = f"{second.full_model}-later" if first is second else second.full_model
        model = later if second.name != "google" or first is not second else "google:gemini-3-flash"
        await conversation.turn(other.script(*script), model, settings=second.settings, base_url=other.url)
        await conversation.turn("and now?", first.full_model, settings=first.settings)
        assert [request.refused for request in [*one.requests, *other.requests]] == [""] * len([*one.requests, *other.requests])
        assert conversation.ends == [("end_turn", "")] * 3
        begun = json.dumps(other.requests[0].body)
        for text in written:
            for item in json.loads(text)["items"]:
                for value in item["data"].values() if isinstance(item["data"], dict) else ():
                    sealed = isinstance(value, str) and len(value) > 30 and value.endswith("=")
                    assert not sealed or value not in begun
        # The first one has its own again, and nothing of the other's.
        assert all(
            opaque.returned(message, first.full_model) == [] for message in conversation.messages[8:-2] if first is not second
        )
