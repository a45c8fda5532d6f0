"""The table of a chat's reducers, and the short ones (V504)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_9.reducers import pending, questions, tool_calls, turns, working_directories
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, assigned

CHAT: Steps = {
    "chat/turnStarted": turns.started,
    "chat/responsePart": turns.part,
    "chat/delta": turns.delta,
    "chat/reasoning": turns.reasoning,
    "chat/usage": turns.usage,
    "chat/turnComplete": turns.completed,
    "chat/turnCancelled": turns.cancelled,
    "chat/error": turns.failed,
    "chat/turnResume": turns.resumed,
    "chat/truncated": turns.truncated,
    "chat/turnsLoaded": turns.loaded,
    "chat/toolCallStart": tool_calls.started,
    "chat/toolCallDelta": tool_calls.delta,
    "chat/toolCallReady": tool_calls.ready,
    "chat/toolCallConfirmed": tool_calls.confirmed,
    "chat/toolCallComplete": tool_calls.completed,
    "chat/toolCallResultConfirmed": tool_calls.result_confirmed,
    "chat/toolCallContentChanged": tool_calls.content_changed,
    "chat/toolCallAuthRequired": tool_calls.auth_required,
    "chat/toolCallAuthResolved": tool_calls.auth_resolved,
    "chat/activityChanged": assigned("activity"),
    "chat/workingDirectorySet": working_directories.added,
    "chat/workingDirectoryRemoved": working_directories.removed,
    "chat/pendingMessageSet": pending.message_set,
    "chat/pendingMessageRemoved": pending.message_removed,
    "chat/queuedMessagesReordered": pending.reordered,
    "chat/draftChanged": assigned("draft"),
    "chat/inputRequested": questions.requested,
    "chat/inputAnswerChanged": questions.answer_changed,
    "chat/inputCompleted": questions.completed,
}
