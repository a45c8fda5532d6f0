"""Messages, attachments, file edits, models and errors, in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_1.wire.messages import (
    FileEditDiff,
    FileEditSide,
    MessageAttachmentBase,
    MessageEmbeddedResourceAttachment,
    SimpleMessageAttachment,
    TextSelection,
)
from sessions_app.ahp.versions.v0_9.wire.enumerations import MessageKind
from sessions_app.core.base.shapes import Number


class AgentSelection(TypedDict):
    uri: URI


class ContentRef(TypedDict):
    uri: URI
    sizeHint: NotRequired[int]
    contentType: NotRequired[str]
    nonce: NotRequired[str]


class ErrorInfo(TypedDict):
    errorType: str
    message: str
    stack: NotRequired[str]
    _meta: NotRequired[dict[str, Any]]


class FileEdit(TypedDict):
    before: NotRequired[FileEditSide]
    after: NotRequired[FileEditSide]
    diff: NotRequired[FileEditDiff]


JsonPrimitive = str | Number | bool | None


class MessageAnnotationsAttachment(MessageAttachmentBase):
    type: Literal["annotations"]
    resource: URI
    annotationIds: NotRequired[list[str]]  # noqa: N815


class MessageChatAttachment(MessageAttachmentBase):
    type: Literal["chat"]
    resource: URI
    endTurn: NotRequired[str]  # noqa: N815


class MessageResourceAttachment(MessageAttachmentBase, ContentRef):
    type: Literal["resource"]
    selection: NotRequired[TextSelection]


MessageAttachment = (
    SimpleMessageAttachment
    | MessageEmbeddedResourceAttachment
    | MessageResourceAttachment
    | MessageAnnotationsAttachment
    | MessageChatAttachment
)


class MessageOrigin(TypedDict):
    kind: MessageKind


class ModelSelection(TypedDict):
    id: str
    config: NotRequired[dict[str, JsonPrimitive]]


class Message(TypedDict):
    text: str
    origin: MessageOrigin
    attachments: NotRequired[list[MessageAttachment]]
    model: NotRequired[ModelSelection]
    agent: NotRequired[AgentSelection]
    _meta: NotRequired[dict[str, Any]]


class PendingMessage(TypedDict):
    id: str
    message: Message
