"""What clients may say: checks messages, tools, options; answers them in canonical form.

Pure. Used by every face, so paths are those of AAP's newest version. Canonical: members nobody asked
for are dropped, an optional member that is null counts as left out, keys keep their order, strings
stay as they are. Each function raises InvalidInput with the faults it found (at most about 100), never anything else.
It does not know what else holds in a session (names taken, calls pending): session_settings and turns do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from agents_app import exact_json, tool_lists
from agents_app import images as image_data
from agents_app.runtime.messages import Content
from sessions_app.core.base.errors import Fault, InvalidInput

P = ParamSpec("P")
T = TypeVar("T")
Path = tuple[str | int, ...]

MAX_LEVELS = 100
"""How deep JSON may be nested (A93)."""

MOST_FAULTS = 100
"""How many faults of one request are looked for: an answer shows no more, and finding them takes time."""

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What a database's text cannot hold (A96)."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
DATA_IMAGE = re.compile(r"data:image/[A-Za-z0-9][A-Za-z0-9.+-]*(?:;[A-Za-z0-9.+-]+=[A-Za-z0-9.+-]*)*;base64,")
HTTP_IMAGE = re.compile(r"https://[^\s/?#][^\s]*")

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking",),
    "tool_use": ("toolCallId", "name", "input"),
    "image": ("url",),
}
BLOCKS: Mapping[str, frozenset[str]] = {
    "user": frozenset({"text", "image"}),
    "assistant": frozenset({"text", "thinking", "tool_use", "image"}),
    "tool": frozenset({"text", "image"}),
}


class Faults:
    """Gathers what several checks found, so that a client hears of everything at once."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, path: Path, detail: str) -> None:
        self.found.append(Fault(path, detail))
        if len(self.found) >= MOST_FAULTS:
            self.settle()

    def take(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What ``check`` answers; None if it found faults, which are kept."""
        try:
            return check(*args, **kwargs)
        except InvalidInput as error:
            self.found += error.faults
            return None

    def settle(self) -> None:
        if self.found:
            raise InvalidInput(self.found)


def unstorable(value: Any, path: Path, levels: int = MAX_LEVELS) -> list[Fault]:
    """What in a JSON value no store can hold: characters (A96), depth (A93), numbers without a value."""
    found: list[Fault] = []
    # A stack of our own: recursion would end where the interpreter's does.
    waiting: list[tuple[Any, Path, int]] = [(value, path, 1)]
    while waiting and len(found) < MOST_FAULTS:
        item, place, level = waiting.pop()
        if isinstance(item, str):
            if UNSTORABLE.search(item):
                found.append(Fault(place, "holds a character that cannot be stored (U+0000 or a lone surrogate)"))
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


def seed_messages(value: Any, images: Collection[str], path: Path = ("messages",)) -> list[dict[str, Any]]:
    """The start of a history (A27). ``images``: the kinds the agent takes, "http", "data"."""
    faults = Faults()
    messages: list[dict[str, Any]] = []
    called: set[str] = set()
    answered: set[str] = set()
    for index, item in _items(value, path, faults):
        message = _seed_message(item, images, (*path, index), faults)
        if message is None:
            continue
        messages.append(message)
        _check_calls(message, called, answered, (*path, index), faults)
    faults.settle()
    return messages


def user_content(value: Any, images: Collection[str], path: Path) -> Content:
    """What a user says: something, or an image (A89)."""
    faults = Faults()
    content = _content(value, "user", images, path, faults)
    faults.settle()
    return content


def result_content(value: Any, images: Collection[str], path: Path) -> Content:
    """What a tool gave; nothing at all is a result too."""
    faults = Faults()
    content = _content(value, "tool", images, path, faults)
    faults.settle()
    return content


def client_tools(value: Any, path: Path = ("tools",)) -> list[dict[str, Any]]:
    """The tools of a client (A15), each name once."""
    faults = Faults()
    tools: list[dict[str, Any]] = []
    names: set[str] = set()
    for index, item in _items(value, path, faults):
        place = (*path, index)
        if not _is_object(item, place, faults):
            continue
        name = _text(item, "name", place, faults)
        if name is not None:
            if TOOL_NAME.fullmatch(name) is None:
                faults.add((*place, "name"), "must have 1 to 64 characters of A-Z a-z 0-9 _ -")
            elif name in names:
                faults.add((*place, "name"), "is the name of another tool of this list too")
            names.add(name)
        if item.get("title") is not None:
            _text(item, "title", place, faults)
        _text(item, "description", place, faults)
        _free_object(item, "parameters", place, faults)
        tools.append(_only(item, ("name", "title", "description", "parameters"), optional=("title",)))
    faults.settle()
    if fault := too_large(tools, path):
        raise InvalidInput([fault])
    return tools


def too_large(declarations: Iterable[Mapping[str, Any]], path: Path) -> Fault | None:
    """What is wrong with a client's list of tools, or the like, that is too large in all; counted one by one."""
    left = tool_lists.most_bytes()
    for each in declarations:
        left -= len(exact_json.dumps(each).encode("utf-8", "surrogatepass"))
        if left < 0:
            return Fault(path, f"has more than {tool_lists.most_bytes():,} bytes in all (AGENTHOST_TOOL_LIST_BYTES)")
    return None


def tool_refs(value: Any, path: Path = ("agent", "tools")) -> list[dict[str, Any]]:
    """Which of the server's tools are enabled, which of them trusted (A16), each name once."""
    faults = Faults()
    refs: list[dict[str, Any]] = []
    names: set[str] = set()
    for index, item in _items(value, path, faults):
        place = (*path, index)
        if not _is_object(item, place, faults):
            continue
        name = _text(item, "name", place, faults)
        if name is not None:
            if name in names:
                faults.add((*place, "name"), "is named in this list already")
            names.add(name)
        trust = item.get("trust")
        if trust is not None and not isinstance(trust, bool):
            faults.add((*place, "trust"), "must be true or false")
        refs.append(_only(item, ("name", "trust"), optional=("trust",)))
    faults.settle()
    return refs


def options(value: Any, path: Path = ("agent", "options")) -> dict[str, str]:
    """Option values by name (A17): strings."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput([Fault(path, "must be an object")])
    faults = Faults()
    for name, text in value.items():
        if not isinstance(text, str):
            faults.add((*path, name), "must be a string")
    faults.found += unstorable(value, path)
    faults.settle()
    return dict(value)


def image_block(kind: str, data: str, images: Collection[str], path: Path) -> dict[str, Any] | None:
    """The image that data (base64) of a media type is; None for what is no image that the agent takes as data.

    InvalidInput for a broken one.
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


# --- messages ---


def _seed_message(item: Any, images: Collection[str], path: Path, faults: Faults) -> dict[str, Any] | None:
    if not _is_object(item, path, faults):
        return None
    role = item.get("role")
    if role == "system":
        text = _text(item, "content", path, faults)
        return None if text is None else _only(item, ("role", "content"))
    if not isinstance(role, str) or role not in BLOCKS:
        faults.add((*path, "role"), "must be system, user, assistant or tool")
        return None
    before = len(faults.found)
    members: tuple[str, ...] = ("role", "content")
    if role == "tool":
        members = ("role", "toolCallId", "content")
        _text(item, "toolCallId", path, faults)
    content = _content(item.get("content"), role, images, (*path, "content"), faults)
    if len(faults.found) > before:
        return None
    return {**_only(item, members), "content": content}


def _check_calls(message: dict[str, Any], called: set[str], answered: set[str], path: Path, faults: Faults) -> None:
    """A90: a result belongs to an earlier call, each call has at most one; A74: an id is one call's."""
    if message["role"] == "assistant" and not isinstance(message["content"], str):
        for index, block in enumerate(message["content"]):
            if block["type"] != "tool_use":
                continue
            if block["toolCallId"] in called:
                faults.add((*path, "content", index, "toolCallId"), "is the id of an earlier call too")
            called.add(block["toolCallId"])
    elif message["role"] == "tool":
        call = message["toolCallId"]
        if call not in called:
            faults.add((*path, "toolCallId"), "no earlier message made this call")
        elif call in answered:
            faults.add((*path, "toolCallId"), "this call is answered already")
        answered.add(call)


def _content(value: Any, role: str, images: Collection[str], path: Path, faults: Faults) -> Content:
    """Checked content; what it answers is worth something only if no fault was added."""
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            faults.found += unstorable(value, path)
        elif role == "user" and not value.strip():
            faults.add(path, "must not be empty")
        return value
    if not isinstance(value, list):
        faults.add(path, "is required" if value is None else "must be a string or a list of blocks")
        return ""
    before = len(faults.found)
    blocks = [
        block for index, item in enumerate(value) if (block := _block(item, role, images, (*path, index), faults)) is not None
    ]
    if role == "user" and len(faults.found) == before:
        said = any(block["type"] == "image" or block["text"].strip() for block in blocks)
        if not said:
            faults.add(path, "must not be empty")
    return blocks


def _block(item: Any, role: str, images: Collection[str], path: Path, faults: Faults) -> dict[str, Any] | None:
    if not _is_object(item, path, faults):
        return None
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in _MEMBERS:
        faults.add((*path, "type"), "must be text, thinking, tool_use or image")
        return None
    if kind not in BLOCKS[role]:
        faults.add((*path, "type"), f"a {role} message holds no {kind} block")
        return None
    before = len(faults.found)
    for member in _MEMBERS[kind]:
        if member == "input":
            _free_object(item, member, path, faults)
        else:
            _text(item, member, path, faults)
    if len(faults.found) > before:
        return None
    if kind == "image" and (detail := _image_fault(item["url"], images)) is not None:
        faults.add(path, detail)
        return None
    return _only(item, ("type", *_MEMBERS[kind]))


def _image_fault(url: str, images: Collection[str]) -> str | None:
    """A88. The address is looked at, never fetched."""
    if HTTP_IMAGE.fullmatch(url):
        return None if "http" in images else "this agent takes no images by https address"
    if not DATA_IMAGE.match(url):
        return "an image's url must be https://… or data:image/…;base64,…"
    try:
        image_data.read(url)
    except image_data.BadImage as error:
        return error.reason
    return None if "data" in images else "this agent takes no images as data"


# --- the shapes under all of them ---


def _items(value: Any, path: Path, faults: Faults) -> Iterable[tuple[int, Any]]:
    if value is None:
        return ()
    if not isinstance(value, list):
        faults.add(path, "must be a list")
        return ()
    return enumerate(value)


def _is_object(value: Any, path: Path, faults: Faults) -> bool:
    if isinstance(value, dict):
        return True
    faults.add(path, "must be an object")
    return False


def _text(item: Mapping[str, Any], member: str, path: Path, faults: Faults) -> str | None:
    """The member if it is a string that can be stored; None and a fault if not."""
    value = item.get(member)
    if not isinstance(value, str):
        faults.add((*path, member), "is required" if value is None else "must be a string")
        return None
    if UNSTORABLE.search(value):
        faults.found += unstorable(value, (*path, member))
        return None
    return value


def _free_object(item: Mapping[str, Any], member: str, path: Path, faults: Faults) -> None:
    value = item.get(member)
    if not isinstance(value, dict):
        faults.add((*path, member), "is required" if value is None else "must be an object")
    else:
        faults.found += unstorable(value, (*path, member))


def _only(item: Mapping[str, Any], members: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """The members that mean something, in the client's order."""
    return {name: value for name, value in item.items() if name in members and not (value is None and name in optional)}
