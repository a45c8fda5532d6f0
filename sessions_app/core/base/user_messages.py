"""User messages with attachments, and their conversion to model input. Pure.

The model input is the text, then each attachment in turn:
- ``simple``: its own representation for models.
- ``embeddedResource``: an image, if the agent accepts images as data and models support the format; text, cut to the
  selection; for anything else its name, type and size, so that the model knows of content that it cannot see.
- ``chat``: the transcript of another conversation, as it was when the message came.
- ``resource``: a file that was read from a workspace, like an embedded resource; an image by its https URL, if the agent accepts
  those; for anything else its name and URL. The server fetches nothing.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agents_app import exact_json
from agents_app.runtime.messages import Content, text_of
from sessions_app.core.base import content
from sessions_app.core.base.errors import Fault, InvalidInput

_TEXTUAL = re.compile(
    r"text/.*|application/([a-z0-9.+-]+\+)?(json|xml|yaml|x-yaml|toml|javascript|typescript|sql|x-sh|graphql|x-httpd-php)"
)
_LONGEST_TITLE = 80


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A user message exactly as its client sent it.

    A missing list of attachments and an empty one are different. Unknown members of an attachment are kept. ``model``: the one
    that the message names, ``{"id"}``.
    """

    text: str
    attachments: list[dict[str, Any]] | None = None
    model: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        named = {} if self.model is None else {"model": self.model}
        return {"text": self.text, **({} if self.attachments is None else {"attachments": self.attachments}), **named}

    @staticmethod
    def of(document: Mapping[str, Any]) -> UserMessage:
        return UserMessage(document["text"], document.get("attachments"), document.get("model"))


def content_of(message: UserMessage, images: Collection[str], files: Mapping[str, bytes] | None = None) -> Content:
    """The model input. ``files``: the content of attached files, by URI.

    InvalidInput for an empty message, broken data, or text that databases cannot store.
    """
    faults = content.unstorable(message.document(), ("userMessage",))
    if faults:
        raise InvalidInput(faults)
    if not message.attachments:
        return content.user_content(message.text, images, ("userMessage", "text"))
    blocks = [{"type": "text", "text": message.text}] if message.text else []
    for index, attachment in enumerate(message.attachments):
        block = _block(attachment, images, ("userMessage", "attachments", index), files or {})
        if block is not None:
            blocks.append(block)
    return content.user_content(blocks, images, ("userMessage",))


def key_of_chat(attachment: Mapping[str, Any]) -> str:
    """The name of a conversation's transcript among the attached files; no URI has a space."""
    return f"{attachment['resource']} {attachment.get('endTurn', '')}"


def kept_files(message: UserMessage, files: Mapping[str, bytes]) -> str | None:
    """The attached files as JSON text, to be stored with a message that waits; None: there are none."""
    named = {each["uri"] for each in message.attachments or () if each["type"] == "resource"}
    named |= {key_of_chat(each) for each in message.attachments or () if each["type"] == "chat"}
    kept = {uri: base64.b64encode(data).decode("ascii") for uri, data in files.items() if uri in named}
    return exact_json.dumps(kept) if kept else None


def files_of(kept: str | None) -> dict[str, bytes]:
    """The files that ``kept_files`` has stored."""
    return {} if kept is None else {uri: base64.b64decode(data) for uri, data in exact_json.loads(kept).items()}


def _block(
    attachment: Mapping[str, Any], images: Collection[str], path: tuple[str | int, ...], files: Mapping[str, bytes]
) -> dict[str, str] | None:
    label = attachment["label"]
    match attachment["type"]:
        case "simple":
            text = attachment.get("modelRepresentation")
            return {"type": "text", "text": text} if text else None
        case "embeddedResource":
            return _embedded(attachment, label, images, path)
        case "resource":
            uri, kind = attachment["uri"], attachment.get("contentType") or ""
            if uri in files and (block := _file(attachment, label, files[uri], images)) is not None:
                return block
            if kind.startswith("image/") and "http" in images and content.HTTP_IMAGE.fullmatch(uri):
                return {"type": "image", "url": uri}
            return {"type": "text", "text": f"[Attachment {label}: {uri}{_lines(attachment)}]"}
        case "chat":
            transcript = files.get(key_of_chat(attachment))
            if transcript is None:
                return {"type": "text", "text": f"[Attachment {label}: a conversation]"}
            return {"type": "text", "text": f"Conversation {label}:\n{transcript.decode('utf-8', 'surrogatepass')}"}
    raise InvalidInput([Fault((*path, "type"), "is not a type of attachment that this server supports")])


def _embedded(attachment: Mapping[str, Any], label: str, images: Collection[str], path: tuple[str | int, ...]) -> dict[str, str]:
    kind: str = attachment["contentType"]
    try:
        data = base64.b64decode(attachment["data"], validate=True)
    except (ValueError, binascii.Error):
        raise InvalidInput([Fault((*path, "data"), "is not base64")]) from None
    if image := content.image_block(kind, attachment["data"], images, (*path, "data")):
        return image
    if _TEXTUAL.fullmatch(kind.partition(";")[0].strip().lower()):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        if text and "\0" not in text:
            return {"type": "text", "text": f"Attachment {label}{_lines(attachment)}:\n{_selected(text, attachment)}"}
    return {"type": "text", "text": f"[Attachment {label}: {kind}, {len(data)} bytes that cannot be shown here]"}


def _file(attachment: Mapping[str, Any], label: str, data: bytes, images: Collection[str]) -> dict[str, str] | None:
    """An attached file; None if models cannot see it."""
    kind = attachment.get("contentType") or mimetypes.guess_type(unquote(attachment["uri"]), strict=False)[0] or ""
    try:
        if image := content.image_block(kind, base64.b64encode(data).decode("ascii"), images, ()):
            return image
        text = data.decode()
    except (InvalidInput, UnicodeDecodeError):
        return None
    if "\0" in text:
        return None
    return {"type": "text", "text": f"Attachment {label}{_lines(attachment)}:\n{_selected(text, attachment)}"}


def _range(attachment: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    selection = attachment.get("selection")
    if selection is None:
        return None
    start, end = selection["range"]["start"], selection["range"]["end"]
    return int(start["line"]), int(start["character"]), int(end["line"]), int(end["character"])


def _lines(attachment: Mapping[str, Any]) -> str:
    found = _range(attachment)
    return "" if found is None else f" (lines {found[0] + 1} to {found[2] + 1})"


def _selected(text: str, attachment: Mapping[str, Any]) -> str:
    found = _range(attachment)
    if found is None:
        return text
    first, begin, last, end = found
    lines = text.split("\n")[max(first, 0) : last + 1]
    if not lines or last < first:
        return ""
    if last - first < len(lines):
        lines[-1] = _units(lines[-1], 0, end)
    lines[0] = _units(lines[0], begin, None)
    return "\n".join(lines)


def _units(line: str, begin: int, end: int | None) -> str:
    """A part of a line; positions are UTF-16 code units, as in editors."""
    raw = line.encode("utf-16-le", "surrogatepass")
    return raw[2 * max(begin, 0) : None if end is None else 2 * max(end, 0)].decode("utf-16-le", "replace")


def title_of(message: Content) -> str | None:
    """A session's title from its first message: the first line that is not blank, cut between words."""
    for line in text_of(message).splitlines():
        title = " ".join(line.split())
        if not title:
            continue
        if len(title) <= _LONGEST_TITLE:
            return title
        return f"{title[:_LONGEST_TITLE].rpartition(' ')[0] or title[:_LONGEST_TITLE]}…"
    return None
