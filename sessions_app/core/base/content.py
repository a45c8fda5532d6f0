"""Content that clients send: messages, tools and options, with their rules.

Pure. Both protocols use it; the paths of faults are those of AAP's newest version. A declaration (shapes.py) has all rules
that need only the value; the rules that need the agent or the messages before are functions. Reading drops unknown members and
nulls of optional ones, and keeps strings and the order of members as they came. It reports at most about 100 faults. Names that
are taken and calls that are pending in a session are checked by session_settings and turns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, ParamSpec, TypedDict, TypeVar

from agents_app import exact_json, tool_lists
from agents_app import images as image_data
from agents_app.runtime.messages import Content
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.shapes import Named, Rule, Shape, Unique

P = ParamSpec("P")
T = TypeVar("T")
Path = tuple[str | int, ...]

MAX_LEVELS = 100
"""How deep JSON may be nested (A93)."""

MOST_FAULTS = 100
"""Faults reported for one request; finding more would take time, and an answer shows no more."""

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that no database stores as text (A96)."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
DATA_IMAGE = re.compile(r"data:image/[A-Za-z0-9][A-Za-z0-9.+-]*(?:;[A-Za-z0-9.+-]+=[A-Za-z0-9.+-]*)*;base64,")
HTTP_IMAGE = re.compile(r"https://[^\s/?#][^\s]*")


# --- rules of one value ---


def _image_fault(block: Mapping[str, Any]) -> str | None:
    """A88. The server does not fetch the address."""
    url = block["url"]
    if HTTP_IMAGE.fullmatch(url):
        return None
    if not DATA_IMAGE.match(url):
        return "an image's url must be https://… or data:image/…;base64,…"
    try:
        image_data.read(url)
    except image_data.BadImage as error:
        return error.reason
    return None


def _empty_fault(content: Content) -> str | None:
    """A89: a user message has text that is not only white space, or an image."""
    full = content.strip() if isinstance(content, str) else any(block.get("text", "image").strip() for block in content)
    return None if full else "must not be empty"


def _tool_name_fault(name: str) -> str | None:
    return None if TOOL_NAME.fullmatch(name) else "must have 1 to 64 characters of A-Z a-z 0-9 _ -"


def _size_fault(tools: Sequence[Mapping[str, Any]]) -> str | None:
    fault = too_large(tools, ())
    return fault.detail if fault else None


def whole(pattern: str) -> str:
    """The pattern for JSON Schema, which looks for it anywhere in a text."""
    return f"^(?:{pattern})$"


# --- messages ---

CallId = Annotated[str, "Identifies one tool call of the session."]


class TextBlock(TypedDict):
    type: Literal["text"]
    text: str


class ThinkingBlock(TypedDict):
    """The model's thinking before its answer."""

    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(TypedDict):
    """The agent calls a tool."""

    type: Literal["tool_use"]
    toolCallId: CallId
    name: str
    input: dict[str, Any]


class ImageBlock(TypedDict):
    type: Literal["image"]
    url: Annotated[
        str,
        "`https:`, which the server never fetches, or base64 of a PNG, JPEG, GIF or WebP in a `data:` address.",
        Rule(pattern=whole(f"{HTTP_IMAGE.pattern}|{DATA_IMAGE.pattern}[A-Za-z0-9+/]+={{0,2}}")),
    ]


Image = Annotated[ImageBlock, Rule(_image_fault)]
# Each variant of content has a name: generators of clients name the others themselves, and two get one name.
Text = Annotated[str, Named("Text"), "Content that is only text."]
UserText = Annotated[str, Named("UserText"), "The text of a user: not only white space.", Rule(_empty_fault, pattern=r"\S")]
UserBlocks = Annotated[
    list[TextBlock | Image],
    Named("UserBlocks"),
    "The blocks that the content of a user message may have.",
    Rule(_empty_fault, minItems=1),
]
AssistantBlocks = Annotated[
    list[TextBlock | ThinkingBlock | ToolUseBlock | Image],
    Named("AssistantBlocks"),
    "The blocks that the content of an assistant message may have.",
]
ToolBlocks = Annotated[list[TextBlock | Image], Named("ToolBlocks"), "The blocks that the content of a tool message may have."]


class SystemMessage(TypedDict):
    """An instruction of the application."""

    role: Literal["system"]
    content: str


class UserMessage(TypedDict):
    """A message of the user: text that is not only white space, or an image."""

    role: Literal["user"]
    content: UserText | UserBlocks


class AssistantMessage(TypedDict):
    """The agent's text and its tool calls."""

    role: Literal["assistant"]
    content: Text | AssistantBlocks


class ToolMessage(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    toolCallId: CallId
    content: Text | ToolBlocks


HistoryMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Named("HistoryMessage")]


# --- tools and options ---


ToolName = Annotated[str, Rule(_tool_name_fault, pattern=whole(TOOL_NAME.pattern))]
ToolDescription = Annotated[str, "What the tool does, for the model. May be empty."]
ToolParameters = Annotated[dict[str, Any], "The JSON Schema of its arguments."]
ToolTitle = Annotated[str, "The tool's name for people."]


class ToolSpecification(TypedDict):
    """A tool, as the model needs to know it to call it."""

    name: ToolName
    description: ToolDescription
    parameters: ToolParameters
    title: NotRequired[ToolTitle]


class ToolReference(TypedDict):
    """Enables one of the server's tools."""

    name: Annotated[str, "A tool that `/meta` lists for the agent."]
    # No `default`: generators of clients take such a member for one that is always there.
    trust: NotRequired[Annotated[bool, "Run it without asking. Left out: ask."]]


ClientTools = Annotated[
    list[ToolSpecification],
    "Tools that the client runs itself.",
    Unique("name", "is the name of another tool of this list too"),
    Rule(_size_fault),
]
ToolReferences = Annotated[
    list[ToolReference],
    "The server's tools that are enabled; all others are disabled.",
    Unique("name", "is named in this list already"),
]
Options = Annotated[dict[str, str], "Option values by name; `/meta` lists them."]


# --- reading ---


def shape(declared: Any) -> Shape[Any]:
    """The shape of something that clients send, read in the canonical form."""
    return Shape(declared, unknown="drop", most_faults=MOST_FAULTS)


_USER_CONTENT = shape(UserText | UserBlocks)


def read(shape: Shape[T], value: Any, path: Path) -> T:
    """Read a value that may contain what no database stores. Bodies of requests were checked for that as a whole."""
    result = shape.read(value, path)
    if faults := unstorable(result, path):
        raise InvalidInput(faults)
    return result


def user_content(value: Any, images: Collection[str], path: Path) -> Content:
    """A user message's content. ``images``: the kinds that the agent takes, "http", "data"."""
    content: Content = read(_USER_CONTENT, value, path)
    if faults := image_faults(content, images, path):
        raise InvalidInput(faults)
    return content


class Faults:
    """Collects the faults of several checks, so that a client gets all of them at once."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def take(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of ``check``; None if it found faults, which are collected."""
        try:
            return check(*args, **kwargs)
        except InvalidInput as error:
            self.found += error.faults
            return None

    def settle(self, order: Iterable[str] = ()) -> None:
        """Raise what was found, in the ``order`` of the input's members."""
        if self.found:
            places = {name: place for place, name in enumerate(order)}
            raise InvalidInput(sorted(self.found, key=lambda fault: places.get(str(fault.path[0]), -1) if fault.path else -1))


# --- rules that need more than the value ---


def image_faults(content: Content, images: Collection[str], path: Path) -> list[Fault]:
    """Images that the agent does not take. ``images``: the kinds it takes, "http", "data"."""
    found: list[Fault] = []
    if not isinstance(content, str):
        for index, block in enumerate(content):
            if block["type"] == "image":
                kind, name = ("http", "by https address") if HTTP_IMAGE.fullmatch(block["url"]) else ("data", "as data")
                if kind not in images:
                    found.append(Fault((*path, index), f"this agent takes no images {name}"))
    return found


def seed_faults(messages: Sequence[Mapping[str, Any]], images: Collection[str], path: Path = ("messages",)) -> list[Fault]:
    """Faults of a session's initial history (A27), at most about 100 of them.

    A90: a result belongs to an earlier call, and a call has at most one. A74: no two calls have one id.
    """
    found: list[Fault] = []
    called: set[str] = set()
    answered: set[str] = set()
    for index, message in enumerate(messages):
        if len(found) >= MOST_FAULTS:
            break
        place = (*path, index)
        content = message["content"]
        found += image_faults(content, images, (*place, "content"))
        if message["role"] == "assistant" and not isinstance(content, str):
            for number, block in enumerate(content):
                if block["type"] == "tool_use":
                    if block["toolCallId"] in called:
                        found.append(Fault((*place, "content", number, "toolCallId"), "is the id of an earlier call too"))
                    called.add(block["toolCallId"])
        elif message["role"] == "tool":
            call = message["toolCallId"]
            if call not in called:
                found.append(Fault((*place, "toolCallId"), "no earlier message made this call"))
            elif call in answered:
                found.append(Fault((*place, "toolCallId"), "this call is answered already"))
            answered.add(call)
    return found


def unstorable(value: Any, path: Path, levels: int = MAX_LEVELS) -> list[Fault]:
    """Faults of a JSON value that cannot be stored: characters (A96), depth (A93), NaN and infinity."""
    found: list[Fault] = []
    # A stack of our own: recursion would end where the interpreter's does.
    waiting: list[tuple[Any, Path, int]] = [(value, path, 1)]
    while waiting and len(found) < MOST_FAULTS:
        item, place, level = waiting.pop()
        if isinstance(item, str):
            if UNSTORABLE.search(item):
                found.append(Fault(place, "contains a character that cannot be stored (U+0000 or a lone surrogate)"))
        elif isinstance(item, float):
            if not math.isfinite(item):
                found.append(Fault(place, "is not a number"))
        elif isinstance(item, dict | list):
            if level > levels:
                found.append(Fault(place, f"is nested more than {levels} levels deep"))
                continue
            members: Iterable[tuple[str | int, Any]] = item.items() if isinstance(item, dict) else enumerate(item)
            for key, child in members:
                if isinstance(key, str) and UNSTORABLE.search(key):
                    found.append(Fault((*place, key), "has a name that cannot be stored (U+0000 or a lone surrogate)"))
                if isinstance(child, str | float | dict | list):
                    waiting.append((child, (*place, key), level + 1))
    return found


def too_large(declarations: Iterable[Mapping[str, Any]], path: Path) -> Fault | None:
    """The fault of a client's list of declarations that is too large in all. Counts one by one and stops at the limit."""
    left = tool_lists.most_bytes()
    for each in declarations:
        left -= len(exact_json.dumps(each).encode("utf-8", "surrogatepass"))
        if left < 0:
            return Fault(path, f"has more than {tool_lists.most_bytes():,} bytes in all (AGENTHOST_TOOL_LIST_BYTES)")
    return None


def image_block(kind: str, data: str, images: Collection[str], path: Path) -> dict[str, Any] | None:
    """The image block for base64 data of a media type; None if it is no image, or the agent takes no images as data.

    InvalidInput for a broken image.
    """
    plain = image_data.media_type(kind.partition(";")[0])
    if plain not in image_data.FORMATS or "data" not in images or not data:
        return None
    url = f"data:{plain};base64,{data}"
    try:
        image_data.read(url)
    except image_data.BadImage as error:
        raise InvalidInput([Fault(path, error.reason)]) from None
    return {"type": "image", "url": url}
