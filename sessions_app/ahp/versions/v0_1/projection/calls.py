"""Tool calls and the parts of a turn, as states of all versions show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core.sessions.state import CallView, Part

Stored = Mapping[str, Any]


def part_of(part: Part, session: str, call_of: Callable[[CallView, str], dict[str, Any]]) -> dict[str, Any]:
    """``session``: the URI below which a call's contents are. ``call_of``: the version's own."""
    if part.call is not None:
        return {"kind": "toolCall", "toolCall": call_of(part.call, session)}
    return {"kind": "markdown" if part.kind == "text" else "reasoning", "id": part.id, "content": part.text}


def call_of(
    call: CallView, session: str, base_of: Callable[[Stored], dict[str, Any]], message: Callable[[Stored], dict[str, Any]]
) -> dict[str, Any]:
    """A call in its state. ``base_of``: its members in every state; ``message``: a user's message in the version's form."""
    named = {"call": call.id, "name": call.name, "title": call.title, "client": call.client}
    base = base_of(named)
    if call.status == "streaming":
        streaming = {**base, "status": "streaming"}
        return {**streaming, "partialInput": call.input} if call.has_input else streaming
    if call.status == "ended" and not call.has_input:
        # The turn ended while the model was still writing the call.
        return {**base, "status": "cancelled", "reason": "skipped", "invocationMessage": ""}
    base = {**base, "invocationMessage": values.invocation(named), "toolInput": call.input}
    chosen = values.selected(call.option)
    if call.status == "asking":
        return {**base, "status": "pending-confirmation", **values.confirmation_of(named, call.preview, session)}
    if call.status == "ended":
        return {**base, "status": "cancelled", **_ending(call, chosen, message)}
    ran = {**base, "confirmed": call.why, **chosen}
    if call.status == "running":
        return {**ran, "status": "running"} if call.shown is None else {**ran, "status": "running", "content": call.shown}
    result = values.tool_result(
        call.content if call.content is not None else "",
        failed=call.failed,
        call=call.id,
        outcome=call.outcome,
        edits=call.edits,
        session=session,
        terminals=call.shown or (),
    )
    return {**ran, **result, "status": "pending-result-confirmation" if call.status == "reviewing" else "completed"}


def _ending(call: CallView, chosen: Mapping[str, Any], message: Callable[[Stored], dict[str, Any]]) -> dict[str, Any]:
    shown: dict[str, Any] = {"reason": call.how or "skipped"}
    if call.how == "result-denied":
        return {**shown, **chosen}
    if call.reason is not None:
        shown["reasonMessage"] = call.reason
    if call.suggestion is not None:
        shown["userSuggestion"] = message(call.suggestion)
    # An option that granted the call no longer counts when the end of the turn has closed it.
    if chosen and chosen["selectedOption"]["kind"] == "deny":
        shown |= chosen
    return shown
