"""Agents in Python for the tests: one of each kind, and what is wrong with others."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import BinaryContent, FunctionToolset, ImageUrl, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.models.test import TestModel

from agents_app.python_agent import Agent, Finish, Opaque, Request, Said, State, ThinkingDelta, ToolCall, Usage


def double(x: int) -> int:
    """Doubles a number.

    Args:
        x: the number
    """
    return 2 * x


class Counter(Agent):
    """Doubles what it is told, and counts how often it was asked."""

    title = "Counter"
    description = "Counts."
    instructions = "Speak {language}; {this} stays, {{that}} too."
    options = [{"type": "text", "name": "language", "default": "English"}, {"type": "secret", "name": "pin"}]
    tools = [double]

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        if not request.results:
            yield ThinkingDelta("a number?")
            yield Usage(3, 4)
            yield ToolCall("double", {"x": int(request.text)})
            return
        count = (request.state or 0) + 1
        yield f"{request.results[0].text}, "
        yield f"for the {count}th time"
        yield State(count)


class InThreads:
    """A plain generator: may block."""

    threads: set[str] = set()

    def respond(self, request: Request) -> Iterator[Said]:
        self.threads.add(threading.current_thread().name)
        time.sleep(0.001)
        yield "one "
        yield request.options.get("none", "two")


class Mirror:
    """Says what it was given."""

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        names = [tool.name for tool in request.tools]
        yield f"{request.instructions}|{dict(request.options)}|{dict(request.settings)}|{names}|{len(request.messages)}"


class Refuses:
    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield "No."
        yield Finish("refusal")


class Breaks:
    """Raises after its first words; what it raises quotes the user."""

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield "half"
        raise ValueError(f"cannot do {request.text}")


class Exits:
    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield "half"
        sys.exit("bye")


class ExitsInThreads:
    def respond(self, request: Request) -> Iterator[Said]:
        yield "half"
        sys.exit("bye")


class Silent:
    """Says nothing, until it is told to stop; ``stopped`` then."""

    begun = asyncio.Event()
    stopped = asyncio.Event()

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        yield ""


class Pauses:
    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield "word"
        await asyncio.Event().wait()


class Stubborn:
    """Does not stop when it is told to."""

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield "word"
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.told.set()

    free = asyncio.Event()
    told = asyncio.Event()


class Nonsense:
    async def respond(self, request: Request) -> AsyncIterator[Any]:
        yield 17


class NoJson:
    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield Opaque("state", object())


class NoGenerator:
    def respond(self, request: Request) -> str:
        return "not yielded"


class NeedsArguments:
    def __init__(self, key: str) -> None:
        self.key = key

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield self.key


class BadAttributes:
    title = 17
    options = ["language"]
    tools = [int, lambda *numbers: 0]

    async def respond(self, request: Request) -> AsyncIterator[Said]:
        yield ""


ready_made = NeedsArguments("made beforehand")


# --- pydantic_ai ---


class Place(BaseModel):
    name: str
    height: Annotated[int, Field(ge=0)] = 0


def where(place: Place, *, days: int = 3) -> dict[str, object]:
    """Tells about a place.

    Args:
        place: which one
    """
    if place.name == "nowhere":
        raise ModelRetry("there is no such place")
    return {"place": place, "days": days}


def on_a_day(day: date) -> str:
    """Tells about a day."""
    return f"{day:%A}"


async def picture(kind: str) -> object:
    """Shows a picture."""
    dot = BinaryContent(data=b"dot", media_type="image/png")
    match kind:
        case "url":
            return ImageUrl(url="https://example.org/dot.png")
        case "data":
            return ["a dot:", dot]
        case "return":
            return ToolReturn(return_value="a dot", content=["see", dot], metadata={"not": "shown"})
        case _:
            return ToolReturn(return_value={"plain": True})


def wants_approval() -> str:
    """Needs an approval of its own."""
    raise ApprovalRequired


def numbers(first: int, *rest: int) -> int:
    """Adds."""
    return first + sum(rest)


plain = PydanticAgent(
    "openai-chat:gpt-test",
    name="plain",
    description="A plain agent.",
    system_prompt="You are plain.",
    instructions=["Speak {language}, never {that}.", "Be {{brief}}."],
    model_settings={
        "temperature": 0.1,
        "stop_sequences": ["END"],
        "extra_body": {"top_a": 1},
        "extra_headers": {"X-Team": "{b}"},
    },
    tools=[where, Tool(picture, timeout=7), on_a_day],
    toolsets=[FunctionToolset([wants_approval, numbers], instructions="Tools are sharp.")],
    tool_timeout=5,
    defer_model_check=True,
)
on_a_model = PydanticAgent(TestModel(custom_output_text="said by the model"), instructions="Hello.", tools=[double])
without_a_model = PydanticAgent(instructions="Whoever speaks.")
named_test = PydanticAgent("test", defer_model_check=True)
model = TestModel(custom_output_text="said by the model alone")


class Derived(PydanticAgent[object, str]):
    pass


derived = Derived("openai-chat:m", defer_model_check=True)


def takes_context(ctx: RunContext[object], x: int) -> int:
    """Needs what is not there."""
    return x
