"""What all versions show alike: the members of actions that differ in nothing but the names of their channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agents_app import exact_json
from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core.base.caller import Sight
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.tenancy import agent_listings
from sessions_app.core.terminals import listing

Payload = Mapping[str, Any]
Made = tuple[str, dict[str, Any]]
"""An action's name and its members."""
Make = Callable[[Payload], Made | None]

SESSION_URI = "session_uri"
"""A member that the payload of events with URIs of contents gets here: these are below the session's URI."""
WITH_CONTENTS = frozenset({Kind.CALL_FINISHED, Kind.CALL_READY, Kind.DIFFS_CHANGED})


# --- the session ---


def title(payload: Payload) -> Made:
    return "titleChanged", {"title": payload["title"]}


def _read(payload: Payload) -> Made:
    return "isReadChanged", {"isRead": payload["read"]}


def _archived(payload: Payload) -> Made:
    return "isArchivedChanged", {"isArchived": payload["archived"]}


def _settings(payload: Payload) -> Made:
    members: dict[str, Any] = {"config": values.config_values(payload["options"], payload.get("approval"))}
    if payload.get("replace"):
        members["replace"] = True
    return "configChanged", members


def _server_tools(payload: Payload) -> Made:
    return "serverToolsChanged", {"tools": [values.tool_definition(tool) for tool in payload["tools"]]}


# --- its chat ---


def _activity(payload: Payload) -> Made:
    return "activityChanged", {} if payload["activity"] is None else {"activity": payload["activity"]}


def _cut(payload: Payload) -> Made:
    return "truncated", {} if payload["turn"] is None else {"turnId": payload["turn"]}


def _not_pending(payload: Payload) -> Made:
    return "pendingMessageRemoved", {"kind": payload["kind"], "id": payload["id"]}


def _reordered(payload: Payload) -> Made:
    return "queuedMessagesReordered", {"order": payload["order"]}


def _text_opened(payload: Payload) -> Made:
    return "responsePart", {"turnId": payload["turn"], "part": {"kind": "markdown", "id": payload["part"], "content": ""}}


def _thinking_opened(payload: Payload) -> Made:
    return "responsePart", {"turnId": payload["turn"], "part": {"kind": "reasoning", "id": payload["part"], "content": ""}}


def _text(payload: Payload) -> Made:
    return "delta", {"turnId": payload["turn"], "partId": payload["part"], "content": payload["delta"]}


def _thinking(payload: Payload) -> Made:
    return "reasoning", {"turnId": payload["turn"], "partId": payload["part"], "content": payload["delta"]}


def _usage(payload: Payload) -> Made:
    return "usage", {"turnId": payload["turn"], "usage": values.usage(payload["usage"])}


# --- tool calls ---


def of_call(payload: Payload) -> dict[str, Any]:
    return {"turnId": payload["turn"], "toolCallId": payload["call"]}


def _call_arguments(payload: Payload) -> Made:
    return "toolCallDelta", {**of_call(payload), "content": payload["delta"]}


def _call_ready(payload: Payload) -> Made:
    # An earlier release wrote the parsed input alone.
    text = payload["arguments"] if "arguments" in payload else exact_json.dumps(payload["input"])
    members = {**of_call(payload), "invocationMessage": values.invocation(payload), "toolInput": text}
    if payload["asks"]:
        members |= values.confirmation_of(payload, payload.get("edits", ()), payload.get(SESSION_URI, ""))
    else:
        members["confirmed"] = payload.get("why") or "not-needed"
    return "toolCallReady", members


def _call_granted(payload: Payload) -> Made:
    members = {**of_call(payload), "approved": True, "confirmed": payload.get("why") or "user-action"}
    if payload.get("input") is not None:
        members["editedToolInput"] = payload["input"]
    if payload.get("option") is not None:
        members["selectedOptionId"] = payload["option"]
    return "toolCallConfirmed", members


def call_denied(payload: Payload, suggestion: Callable[[Payload], Payload]) -> Made | None:
    """``suggestion``: a user's message in the version's form."""
    if payload.get("closing"):
        return None
    members = {**of_call(payload), "approved": False, "reason": payload.get("how") or "denied"}
    if payload["reason"]:
        members["reasonMessage"] = payload["reason"]
    if payload.get("suggestion") is not None:
        members["userSuggestion"] = suggestion(payload["suggestion"])
    if payload.get("option") is not None:
        members["selectedOptionId"] = payload["option"]
    return "toolCallConfirmed", members


def call_finished(payload: Payload) -> Made:
    result = values.tool_result(
        payload["content"],
        failed=payload["failed"],
        call=payload["call"],
        outcome=payload.get("outcome"),
        edits=payload.get("edits", ()),
        session=payload.get(SESSION_URI, ""),
        terminals=payload.get("terminals", ()),
    )
    members = {**of_call(payload), "result": result}
    if payload.get("reviewed"):
        members["requiresResultConfirmation"] = True
    return "toolCallComplete", members


def _call_content(payload: Payload) -> Made:
    return "toolCallContentChanged", {**of_call(payload), "content": payload["content"]}


def _call_result(payload: Payload) -> Made:
    return "toolCallResultConfirmed", {**of_call(payload), "approved": payload["approved"]}


# --- forms ---


def _form_opened(payload: Payload) -> Made:
    return "inputRequested", {"request": payload["form"]}


def _form_answer(payload: Payload) -> Made:
    members = {"requestId": payload["form"], "questionId": payload["question"]}
    if payload["answer"] is not None:
        members["answer"] = payload["answer"]
    return "inputAnswerChanged", members


def _form_closed(payload: Payload) -> Made:
    members = {"requestId": payload["form"], "response": payload["response"]}
    if payload["answers"]:
        members["answers"] = payload["answers"]
    return "inputCompleted", members


OF_SESSIONS: Mapping[str, Make] = {
    Kind.TITLE_CHANGED: title,
    Kind.READ_CHANGED: _read,
    Kind.ARCHIVED_CHANGED: _archived,
    Kind.SETTINGS_CHANGED: _settings,
    Kind.SERVER_TOOLS_CHANGED: _server_tools,
}
OF_CHATS: Mapping[str, Make] = {
    Kind.ACTIVITY_CHANGED: _activity,
    Kind.HISTORY_CUT: _cut,
    Kind.MESSAGE_NOT_PENDING: _not_pending,
    Kind.MESSAGES_REORDERED: _reordered,
    Kind.TEXT_OPENED: _text_opened,
    Kind.THINKING_OPENED: _thinking_opened,
    Kind.TEXT_DELTA: _text,
    Kind.THINKING_DELTA: _thinking,
    Kind.STEP_DONE: _usage,
    Kind.CALL_ARGUMENTS: _call_arguments,
    Kind.CALL_READY: _call_ready,
    Kind.CALL_GRANTED: _call_granted,
    Kind.CALL_FINISHED: call_finished,
    Kind.CALL_CONTENT_CHANGED: _call_content,
    Kind.CALL_RESULT_CONFIRMED: _call_result,
    Kind.FORM_OPENED: _form_opened,
    Kind.FORM_ANSWER_CHANGED: _form_answer,
    Kind.FORM_CLOSED: _form_closed,
}
"""In 0.1 these are of sessions, too."""


# --- the root ---


def of_root(
    event: Event,
    sight: Sight,
    sessions: int | None,
    agent: Callable[[Mapping[str, Any]], dict[str, Any]],
    terminal: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any] | None:
    """The action of an event of the tenant; None if there is none for a caller with this sight.

    ``agent``, ``terminal``: an agent's card and a terminal's entry in the version's form.
    """
    if event.kind == Kind.ACTIVE_SESSIONS_CHANGED:
        count = exact_json.loads(event.data)["count"] if sight.is_whole else sessions
        return None if count is None else {"type": "root/activeSessionsChanged", "activeSessions": count}
    if event.kind == Kind.AGENTS_CHANGED:
        payload = exact_json.loads(event.data)
        # Events of the previous release do not name the agents that look different.
        if sight.agents is not None and not any(name in sight.agents for name in payload.get("reshown", sight.agents)):
            return None
        cards = agent_listings.visible(payload["agents"], sight.agents)
        return {"type": "root/agentsChanged", "agents": [agent(card) for card in cards]}
    if event.kind == Kind.TERMINALS_CHANGED:
        entries = listing.visible(exact_json.loads(event.data)["terminals"], sight)
        return {"type": "root/terminalsChanged", "terminals": [terminal(entry) for entry in entries]}
    return None


def origin_of(origin: Payload) -> dict[str, Any]:
    return {"clientId": origin["client"], "clientSeq": origin["seq"]}
