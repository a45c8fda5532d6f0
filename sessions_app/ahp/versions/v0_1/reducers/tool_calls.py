"""Tool calls of the active turn, from state to state (R420-R426).

    streaming -> pending-confirmation | running -> (pending-confirmation again)
              -> completed | pending-result-confirmation -> completed | cancelled

Each step drops the members that the next state does not have. Four of these actions recompute the session's activity even if
they match no call: one without a call so clears the status "error".
"""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, picked
from sessions_app.ahp.versions.v0_1.reducers.status import recomputed
from sessions_app.ahp.versions.v0_1.reducers.turns import BASE, active

_ASKED = ("invocationMessage", "toolInput")
_CHOSEN = "selectedOption"


def _stepped(state: Obj, action: Obj, step: Callable[[Obj], Obj | None]) -> Obj:
    """The state with the action's call in its next state; ``step`` returns None if the call is in another state."""
    turn = active(state, action)
    if turn is None:
        return state
    wanted, any_matched, parts = action["toolCallId"], False, []
    for part in turn["responseParts"]:
        item = part
        if part["kind"] == "toolCall" and part["toolCall"]["toolCallId"] == wanted:
            call = step(part["toolCall"])
            if call is not None:
                item, any_matched = changed(part, toolCall=call), True
        parts.append(item)
    return changed(state, activeTurn=changed(turn, responseParts=parts)) if any_matched else state


def started(state: Obj, action: Obj, _now: int) -> Obj:
    turn = active(state, action)
    if turn is None:
        return state
    part = {"kind": "toolCall", "toolCall": {**picked(action, *BASE), "status": "streaming"}}
    return changed(state, activeTurn=changed(turn, responseParts=[*turn["responseParts"], part]))


def delta(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "streaming":
            return None
        text = (call.get("partialInput") or "") + action["content"]
        return changed(call, partialInput=text, **picked(action, "invocationMessage"))

    return _stepped(state, action, step)


def ready(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] not in ("streaming", "running"):
            return None
        known = {**picked(call, *BASE), **picked(action, *_ASKED)}
        if action.get("confirmed"):
            return {**known, "status": "running", "confirmed": action["confirmed"]}
        shown = picked(action, "confirmationTitle", "edits", "editable", "options")
        return {**known, "status": "pending-confirmation", **shown}

    return recomputed(_stepped(state, action, step))


def confirmed(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "pending-confirmation":
            return None
        known = picked(call, *BASE, *_ASKED)
        chosen = action.get("selectedOptionId")
        for option in call.get("options") or ():
            if chosen is not None and option["id"] == chosen:
                known[_CHOSEN] = option
                break
        if not action["approved"]:
            return {**known, "status": "cancelled", **picked(action, "reason", "reasonMessage", "userSuggestion")}
        # An empty text is an edit too: the tool runs with an empty input.
        if action.get("editedToolInput") is not None:
            known["toolInput"] = action["editedToolInput"]
        return {**known, "status": "running", **picked(action, "confirmed")}

    return recomputed(_stepped(state, action, step))


def completed(state: Obj, action: Obj, _now: int) -> Obj:
    after = "pending-result-confirmation" if action.get("requiresResultConfirmation") else "completed"

    def step(call: Obj) -> Obj | None:
        if call["status"] not in ("running", "pending-confirmation"):
            return None
        result = action["result"]
        known = picked(call, *BASE, *_ASKED)
        known["confirmed"] = "not-needed"
        if call["status"] == "running":
            known |= picked(call, "confirmed", _CHOSEN)
        return {**picked(result, *result), **known, "status": after}

    return recomputed(_stepped(state, action, step))


def result_confirmed(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "pending-result-confirmation":
            return None
        if action["approved"]:
            return changed(call, status="completed")
        return {**picked(call, *BASE, *_ASKED, _CHOSEN), "status": "cancelled", "reason": "result-denied"}

    return recomputed(_stepped(state, action, step))


def content_changed(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        return changed(call, content=action["content"]) if call["status"] == "running" else None

    return _stepped(state, action, step)
