"""Images on the wire in all four formats: what the vendor gets is right, and nobody here fetches an address."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agents_app.runtime.messages import Block, Content
from tests.fakes import steps
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.google_server import GoogleServer
from tests.fakes.model_server import ModelServer
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.scripted_server import ScriptedServer
from tests.network.agents_app.providers.loop_host import Conversation

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OTHER = base64.b64encode(b"\xff\xd8\xff\xe0 another image").decode()


class Trap:
    """Where an image is said to be. ``visited``: whether anybody came to fetch it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/ship.png"

    def visited(self) -> bool:
        try:
            visitor, _ = self._socket.accept()
        except BlockingIOError:
            return False
        visitor.close()
        return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.close()


@dataclass(frozen=True)
class Format:
    """``user`` and ``result``: what arrives, with {http} for the address."""

    model: str
    serve: type[ScriptedServer]
    conversation: str
    """The member of the body that holds it."""
    user: Any
    result: Any
    after: Any = None
    """What follows the result, where images have no place in it."""


def data(kind: str, written: str) -> str:
    return f"data:image/{kind};base64,{written}"


def anthropic_data(kind: str, written: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": f"image/{kind}", "data": written}}


def google_data(kind: str, written: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": f"image/{kind}", "data": written}}


def chat_image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def responses_image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


FORMATS = {
    "openai-chat": Format(
        "openai-chat:gpt-test",
        ModelServer,
        "messages",
        user={
            "role": "user",
            "content": [
                chat_image("{http}"),
                chat_image(data("png", PIXEL)),
                {"type": "text", "text": "{script}"},
            ],
        },
        result={"role": "tool", "tool_call_id": "call_1", "content": "seen:"},
        after={
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of call_1:"},
                chat_image(data("jpeg", OTHER)),
                chat_image("{http}"),
            ],
        },
    ),
    "openai-responses": Format(
        "openai-responses:gpt-5.2",
        ResponsesServer,
        "input",
        user={
            "role": "user",
            "content": [
                responses_image("{http}"),
                responses_image(data("png", PIXEL)),
                {"type": "input_text", "text": "{script}"},
            ],
        },
        result={
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [
                {"type": "input_text", "text": "seen:"},
                responses_image(data("jpeg", OTHER)),
                responses_image("{http}"),
            ],
        },
    ),
    "anthropic": Format(
        "anthropic:claude-sonnet-4-5",
        AnthropicServer,
        "messages",
        user={
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "url", "url": "{http}"}},
                anthropic_data("png", PIXEL),
                {"type": "text", "text": "{script}"},
            ],
        },
        result={
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [
                        {"type": "text", "text": "seen:"},
                        anthropic_data("jpeg", OTHER),
                        {"type": "image", "source": {"type": "url", "url": "{http}"}},
                    ],
                }
            ],
        },
    ),
    "google": Format(
        "google:gemini-3-pro",
        GoogleServer,
        "contents",
        user={
            "role": "user",
            "parts": [
                {"fileData": {"fileUri": "{http}", "mimeType": "image/png"}},
                google_data("png", PIXEL),
                {"text": "{script}"},
            ],
        },
        result={
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call_1",
                        "name": "look",
                        "response": {"output": "seen:\n(an image, not shown here: {http})"},
                        "parts": [google_data("jpeg", OTHER)],
                    }
                }
            ],
        },
    ),
    "google, an older model": Format(
        "google:gemini-2.5-flash",
        GoogleServer,
        "contents",
        user={
            "role": "user",
            "parts": [
                {"fileData": {"fileUri": "{http}", "mimeType": "image/png"}},
                google_data("png", PIXEL),
                {"text": "{script}"},
            ],
        },
        result={
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call_1", "name": "look", "response": {"output": "seen:"}}},
                {"text": "From the result of look:"},
                google_data("jpeg", OTHER),
                {"fileData": {"fileUri": "{http}", "mimeType": "image/png"}},
            ],
        },
    ),
}


@pytest.mark.parametrize("name", FORMATS)
async def test_images_of_users_and_tools_arrive_and_their_addresses_are_left_alone(name: str, trap: Trap) -> None:
    wire = FORMATS[name]

    async def look() -> Content:
        return [
            {"type": "text", "text": "seen:"},
            {"type": "image", "url": data("jpeg", OTHER)},
            {"type": "image", "url": trap.url},
        ]

    server = ModelServer(strict=True) if wire.serve is ModelServer else wire.serve()
    with server:
        # The last text of a user names the script; the images' caption in a format where they follow is one too.
        script = server.script([steps.call("look", {}, id="call_1")], [steps.text("nice")])
        answers: list[Block] = [{"type": "image", "url": trap.url}, {"type": "image", "url": data("png", PIXEL)}]
        conversation = Conversation(server, look=look)
        await conversation.turn([*answers, {"type": "text", "text": script}], wire.model)
        assert [request.refused for request in server.requests] == ["", ""]
        assert conversation.ends == [("end_turn", "")]

        def filled(expected: Any) -> Any:
            return json.loads(json.dumps(expected).replace("{http}", trap.url).replace("{script}", script))

        sent = server.requests[1].body[wire.conversation]
        spoken = [message for message in sent if message.get("role") != "system"]
        assert spoken[0] == filled(wire.user)
        ends = spoken[-2:] if wire.after is not None else spoken[-1:]
        assert ends == filled([each for each in (wire.result, wire.after) if each is not None])
    assert not trap.visited()


async def test_an_address_that_is_fetched_would_be_noticed(trap: Trap) -> None:
    with socket.create_connection(trap.url.removeprefix("http://").partition("/")[0].split(":")):  # type: ignore[arg-type]
        assert trap.visited()
