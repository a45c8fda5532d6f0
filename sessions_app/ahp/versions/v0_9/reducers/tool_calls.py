"""Tool calls of the active turn, from state to state (V505-V509).

    streaming -> pending-confirmation | running <-> auth-required
    running -> pending-confirmation again, completed | pending-result-confirmation -> completed | cancelled

Each step drops the members that the next state does not have. Where a step recomputes the chat's activity, it does so even if
no call matched: one without a call so clears the status "error".
"""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, picked
from sessions_app.ahp.versions.v0_9.reducers.status import recomputed
from sessions_app.ahp.versions.v0_9.reducers.steps import same
from sessions_app.ahp.versions.v0_9.reducers.turns import BASE, active, with_parts

_ASKED = ("invocationMessage", "toolInput")
_SHOWN = ("confirmationTitle", "riskAssessment", "edits", "editable", "options")
_CHOSEN = "selectedOption"


def _stepped(chat: Obj, action: Obj, step: Callable[[Obj], Obj | None]) -> Obj:
    """The chat with the action's call in its next state; ``step`` returns None if the call is in another state."""
    turn = active(chat, action)
    if turn is None:
        return chat
    wanted, any_matched, parts = action["toolCallId"], False, []
    for part in turn["responseParts"]:
        item = part
        if part["kind"] == "toolCall" and same(part["toolCall"]["toolCallId"], wanted):
            call = step(part["toolCall"])
            if call is not None:
                # The action's ``_meta`` replaces the call's (V160).
                item, any_matched = changed(part, toolCall={**call, **picked(action, "_meta")}), True
        parts.append(item)
    return with_parts(chat, turn, parts) if any_matched else chat


def started(chat: Obj, action: Obj) -> Obj:
    turn = active(chat, action)
    if turn is None:
        return chat
    part = {"kind": "toolCall", "toolCall": {**picked(action, *BASE), "status": "streaming"}}
    return with_parts(chat, turn, [*turn["responseParts"], part])


def delta(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "streaming":
            return None
        longer = changed(call, **picked(action, "invocationMessage"))
        content = action.get("content")
        return longer if content is None else changed(longer, partialInput=(call.get("partialInput") or "") + content)

    return _stepped(chat, action, step)


def ready(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] not in ("streaming", "running", "pending-confirmation"):
            return None
        known = {**picked(call, *BASE), **picked(action, "intention"), **_refined(call, action)}
        known |= picked(action, "invocationMessage")
        if call["status"] != "streaming":
            known |= picked(call, "toolInput")
        known |= picked(action, "toolInput")
        if action.get("confirmed"):
            return {**known, "status": "running", "confirmed": action["confirmed"]}
        before = picked(call, *_SHOWN) if call["status"] == "pending-confirmation" else {}
        return {**known, "status": "pending-confirmation", **before, **picked(action, *_SHOWN)}

    return recomputed(_stepped(chat, action, step))


def _refined(call: Obj, action: Obj) -> Obj:
    """The action's contributor, if it does not change who executes the call (V165)."""
    before, after = call.get("contributor") or {}, action.get("contributor")
    if after is None:
        return {}
    if "client" not in (before.get("kind"), after["kind"]):
        return {"contributor": after}
    same_client = before.get("kind") == after["kind"] and same(before.get("clientId"), after.get("clientId"))
    return {"contributor": after} if same_client else {}


def confirmed(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "pending-confirmation":
            return None
        known = picked(call, *BASE, *_ASKED)
        chosen = action.get("selectedOptionId")
        for option in call.get("options") or ():
            if chosen is not None and same(option["id"], chosen):
                known[_CHOSEN] = option
                break
        if not action["approved"]:
            return {**known, "status": "cancelled", **picked(action, "reason", "reasonMessage", "userSuggestion")}
        # An empty text is an edit too. What a reference names is replaced by the host, not here (V164).
        edited = action.get("editedToolInput")
        if edited is not None and isinstance(call.get("toolInput"), str):
            known["toolInput"] = edited
        return {**known, "status": "running", **picked(action, "confirmed")}

    return recomputed(_stepped(chat, action, step))


def completed(chat: Obj, action: Obj) -> Obj:
    result = action["result"]

    def step(call: Obj) -> Obj | None:
        before = call["status"]
        if before not in ("running", "pending-confirmation", "auth-required"):
            return None
        known = picked(call, *BASE, *_ASKED)
        if before == "auth-required":
            if result["success"] is not False:
                return None
            known |= picked(call, "confirmed", _CHOSEN)
            return {**picked(call, "content"), **picked(result, *result), **known, "status": "completed"}
        known["confirmed"] = "not-needed"
        if before == "running":
            known |= picked(call, "confirmed", _CHOSEN)
        after = "pending-result-confirmation" if action.get("requiresResultConfirmation") else "completed"
        return {**picked(result, *result), **known, "status": after}

    return recomputed(_stepped(chat, action, step))


def result_confirmed(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "pending-result-confirmation":
            return None
        if action["approved"]:
            return changed(call, status="completed")
        return {**picked(call, *BASE, *_ASKED, _CHOSEN), "status": "cancelled", "reason": "result-denied"}

    return recomputed(_stepped(chat, action, step))


def content_changed(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        return changed(call, content=action["content"]) if call["status"] == "running" else None

    return _stepped(chat, action, step)


def auth_required(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "running" or (call.get("contributor") or {}).get("kind") != "mcp":
            return None
        return changed(call, status="auth-required", auth=action["auth"])

    return recomputed(_stepped(chat, action, step))


def auth_resolved(chat: Obj, action: Obj) -> Obj:
    def step(call: Obj) -> Obj | None:
        return changed(call, status="running", auth=None) if call["status"] == "auth-required" else None

    return recomputed(_stepped(chat, action, step))
