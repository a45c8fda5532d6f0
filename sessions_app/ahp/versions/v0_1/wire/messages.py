"""Messages of a turn, in AHP 0.1: user messages with their attachments, references to content, file edits."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI


class Markdown(TypedDict):
    markdown: str


StringOrMarkdown = str | Markdown


class TextPosition(TypedDict):
    line: int
    character: int


class TextRange(TypedDict):
    start: TextPosition
    end: TextPosition


class TextSelection(TypedDict):
    range: TextRange


class MessageAttachmentBase(TypedDict):
    label: str
    range: NotRequired[TextRange]
    displayKind: NotRequired[str]
    _meta: NotRequired[dict[str, Any]]


class SimpleMessageAttachment(MessageAttachmentBase):
    type: Literal["simple"]
    modelRepresentation: NotRequired[str]


class MessageEmbeddedResourceAttachment(MessageAttachmentBase):
    type: Literal["embeddedResource"]
    data: str
    contentType: str
    selection: NotRequired[TextSelection]


class MessageResourceAttachment(MessageAttachmentBase):
    uri: URI
    sizeHint: NotRequired[int]
    contentType: NotRequired[str]
    type: Literal["resource"]
    selection: NotRequired[TextSelection]


MessageAttachment = SimpleMessageAttachment | MessageEmbeddedResourceAttachment | MessageResourceAttachment


class UserMessage(TypedDict):
    text: str
    attachments: NotRequired[list[MessageAttachment]]


class PendingMessage(TypedDict):
    id: str
    userMessage: UserMessage


class ContentRef(TypedDict):
    uri: URI
    sizeHint: NotRequired[int]
    contentType: NotRequired[str]


class FileEditSide(TypedDict):
    """A file before or after an edit (A5)."""

    uri: str
    content: ContentRef


class FileEditDiff(TypedDict):
    added: NotRequired[int]
    removed: NotRequired[int]


class FileEdit(TypedDict):
    before: NotRequired[FileEditSide]
    after: NotRequired[FileEditSide]
    diff: NotRequired[FileEditDiff]


class FileEdits(TypedDict):
    """What a tool call that waits for confirmation is about to change."""

    items: list[FileEdit]


class ErrorInfo(TypedDict):
    errorType: str
    message: str
    stack: NotRequired[str]


class UsageInfo(TypedDict):
    inputTokens: NotRequired[int]
    outputTokens: NotRequired[int]
    model: NotRequired[str]
    cacheReadTokens: NotRequired[int]
    _meta: NotRequired[dict[str, Any]]
