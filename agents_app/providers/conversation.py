"""Converts a conversation for strict vendors: every call followed by its result, no blank text, alternating roles. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agents_app.providers.layout import Piece, arranged
from agents_app.runtime.messages import Block, Message, text_of

NO_RESULT = "(no result)"
NOTHING = "(empty message)"
GOES_ON = "(The conversation goes on.)"
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""Image types that most vendors accept."""
_DATA_URL = re.compile(r"data:(?P<type>image/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII | re.IGNORECASE)


@dataclass(slots=True)
class System:
    """A system message within the conversation."""

    text: str


@dataclass(slots=True)
class User:
    """Text and image blocks, at least one, no text blank."""

    parts: list[Block]


@dataclass(slots=True)
class Model:
    """A message of the model in its original order, with at least one text or call."""

    pieces: list[Piece]

    @property
    def call_ids(self) -> list[str]:
        return [piece.call["toolCallId"] for piece in self.pieces if piece.call is not None]


@dataclass(slots=True)
class Result:
    call_id: str
    name: str
    parts: list[Block]

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def images(self) -> list[Block]:
        return [part for part in self.parts if part["type"] == "image"]


@dataclass(slots=True)
class Results:
    """The results of all calls of the preceding model message."""

    results: list[Result]


Entry = System | User | Model | Results


def entries(messages: Sequence[Message], full_model: str) -> list[Entry]:
    """The conversation with the results of each message's calls directly behind it, in the order of the calls.

    A call without a result gets a placeholder; a result without a call becomes text of the user. Images in a model's
    own message, which no vendor accepts, follow it in a user message.
    """
    out: list[Entry] = []
    for group in _after_each_model_message(messages):
        speaker = group[0] if group[0].role == "assistant" else None
        pieces = _pieces(speaker, full_model) if speaker is not None else []
        wanted = {piece.call["toolCallId"]: piece.call["name"] for piece in pieces if piece.call is not None}
        found: dict[str, Result] = {}
        rest: list[Entry] = []
        if speaker is not None and (shown := _images(speaker)):
            rest.append(User([{"type": "text", "text": "From the assistant's message:"}, *shown]))
        for message in group[1:] if speaker is not None else group:
            answered = message.tool_call_id or ""
            if message.role == "tool" and answered in wanted and answered not in found:
                found[answered] = Result(answered, wanted[answered], _parts(message) or [{"type": "text", "text": "(empty)"}])
            elif message.role == "tool":
                rest.append(User([{"type": "text", "text": f"Result of {answered or 'a tool call'}:"}, *_parts(message)]))
            elif message.role == "system":
                if (text := text_of(message.content)).strip():
                    rest.append(System(text))
            else:
                rest.append(User(_parts(message) or [{"type": "text", "text": NOTHING}]))
        if pieces:
            out.append(Model(pieces))
        if wanted:
            nothing: list[Block] = [{"type": "text", "text": NO_RESULT}]
            out.append(Results([found.get(call) or Result(call, name, nothing) for call, name in wanted.items()]))
        out += rest
    return out


def leading_instructions(instructions: str, conversation: list[Entry]) -> tuple[str, list[Entry]]:
    """The instructions with the leading system messages, and the rest of the conversation.

    Later system messages become marked text of the user, for vendors that accept them at the top only.
    """
    texts = [instructions] if instructions.strip() else []
    first = next((at for at, entry in enumerate(conversation) if not isinstance(entry, System)), len(conversation))
    texts += [entry.text for entry in conversation[:first] if isinstance(entry, System)]
    rest: list[Entry] = [
        User([{"type": "text", "text": f"<system>\n{entry.text}\n</system>"}]) if isinstance(entry, System) else entry
        for entry in conversation[first:]
    ]
    return "\n\n".join(texts), rest


def between_users(conversation: list[Entry]) -> list[Entry]:
    """The conversation with a user message at its beginning and its end."""
    said: Entry = User([{"type": "text", "text": GOES_ON}])
    start = [said] if not conversation or isinstance(conversation[0], Model) else []
    end = [said] if conversation and isinstance(conversation[-1], Model) else []
    return [*start, *conversation, *end]


def acts_without_a_thought(conversation: Sequence[Entry]) -> bool:
    """Whether the model's current turn begins with calls without thinking, as another model wrote it.

    Many models make later calls of a turn without thinking. A user's text beside results does not begin a new turn of
    the model.
    """
    begun = 0
    for at, entry in enumerate(conversation):
        if isinstance(entry, User) and not (at and isinstance(conversation[at - 1], Results)):
            begun = at
    first = next((entry for entry in conversation[begun:] if isinstance(entry, Model)), None)
    return first is not None and bool(first.call_ids) and first.pieces[0].kind != "kept"


def taking_turns(
    conversation: Sequence[Entry], written: Callable[[Entry], list[dict[str, Any]]], *, model: str, parts: str
) -> list[dict[str, Any]]:
    """Messages in which the user's and the ``model``'s role alternate. ``parts``: the member with a message's content."""
    out: list[dict[str, Any]] = []
    for entry in conversation:
        if isinstance(entry, System):
            continue
        role = model if isinstance(entry, Model) else "user"
        if out and out[-1]["role"] == role:
            out[-1][parts] += written(entry)
        else:
            out.append({"role": role, parts: written(entry)})
    return out


def data_image(url: str) -> tuple[str, str] | None:
    """(media type, base64) of a data address; None for any other address and for malformed data."""
    match = _DATA_URL.match(url)
    if match is None:
        return None
    data = url[match.end() :].strip()
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = match["type"].lower()
    return ("image/jpeg" if kind == "image/jpg" else kind), data


def image_description(url: str) -> str:
    """The text instead of an image for a vendor that accepts no addresses: the server does not fetch it."""
    return "(an image that cannot be shown here)" if url.startswith("data:") else f"(an image, not shown here: {url})"


def _after_each_model_message(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The conversation split before each message of the model."""
    group: list[Message] = []
    for message in messages:
        if message.role == "assistant" and group:
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _pieces(message: Message, full_model: str) -> list[Piece]:
    pieces = [piece for piece in arranged(message, full_model) if piece.kind != "text" or piece.text.strip() or piece.data]
    # Vendors refuse the last thought of an answer that was cut off.
    while pieces and pieces[-1].kind == "kept":
        pieces.pop()
    # A message with thinking only would be empty, which vendors refuse too.
    return pieces if any(piece.call is not None or piece.text.strip() for piece in pieces) else []


def _parts(message: Message) -> list[Block]:
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content.strip() else []
    return [
        block
        for block in message.content
        if block["type"] == "image" or (block["type"] == "text" and isinstance(block["text"], str) and block["text"].strip())
    ]


def _images(message: Message) -> list[Block]:
    return [] if isinstance(message.content, str) else [block for block in message.content if block["type"] == "image"]
