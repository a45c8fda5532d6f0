"""The closed lists of words of AHP 0.9, beside those of 0.1."""

from __future__ import annotations

from typing import Literal

ChatInputResponseKind = Literal["accept", "decline", "cancel"]
ChatInteractivity = Literal["full", "read-only", "hidden"]
ChildCustomizationType = Literal["agent", "skill", "prompt", "rule", "hook", "mcpServer"]
McpAuthRequiredReason = Literal["required", "expired", "insufficientScope"]
MessageKind = Literal["user", "agent", "tool", "automation", "systemNotification"]
SessionLifecycle = Literal["creating", "ready", "failed"]
ToolCallRiskAssessmentKind = Literal["judge"]
