"""The closed lists of words, and the bits of a session's status, in AHP 0.1."""

from __future__ import annotations

from enum import IntFlag
from typing import Literal

URI = str
"""Compared as an exact string (R60)."""

SessionLifecycle = Literal["creating", "ready", "creationFailed"]
TurnState = Literal["complete", "cancelled", "error"]

ToolCallStatus = Literal["streaming", "pending-confirmation", "running", "pending-result-confirmation", "completed", "cancelled"]
ToolCallConfirmationReason = Literal["not-needed", "user-action", "setting"]
ToolCallCancellationReason = Literal["denied", "skipped", "result-denied"]
ConfirmationOptionKind = Literal["approve", "deny"]

PendingMessageKind = Literal["steering", "queued"]
ResponsePartKind = Literal["markdown", "contentRef", "toolCall", "reasoning", "systemNotification"]
MessageAttachmentKind = Literal["simple", "embeddedResource", "resource"]
ToolResultContentType = Literal["text", "embeddedResource", "resource", "fileEdit", "terminal", "subagent"]

SessionInputQuestionKind = Literal["text", "number", "integer", "boolean", "single-select", "multi-select"]
SessionInputAnswerState = Literal["draft", "submitted", "skipped"]
SessionInputAnswerValueKind = Literal["text", "number", "boolean", "selected", "selected-many"]
SessionInputResponseKind = Literal["accept", "decline", "cancel"]

CustomizationStatus = Literal["loading", "loaded", "degraded", "error"]
PolicyState = Literal["enabled", "disabled", "unconfigured"]
TerminalClaimKind = Literal["client", "session"]
ContentEncoding = Literal["base64", "utf-8"]
ReconnectResultType = Literal["replay", "snapshot"]
CompletionItemKind = Literal["userMessage"]
AuthRequiredReason = Literal["required", "expired"]


class SessionStatus(IntFlag):
    """R150. Exactly one activity (IDLE, ERROR, IN_PROGRESS, INPUT_NEEDED) is set; READ and ARCHIVED come on top."""

    IDLE = 1
    ERROR = 2
    IN_PROGRESS = 8
    INPUT_NEEDED = 24
    READ = 32
    ARCHIVED = 64

    ACTIVITY = 31
    """The bits that the activity may use."""
