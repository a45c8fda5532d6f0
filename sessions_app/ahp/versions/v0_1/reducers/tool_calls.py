"""Tool calls of the active turn, from state to state (R420-R426).

    streaming -> pending-confirmation | running -> (pending-confirmation again)
              -> completed | pending-result-confirmation -> completed | cancelled

Members that a state does not have are left behind at each step. Four of these actions set the session's activity anew even if
they match nothing: a stray one so ends the showing of an error.
"""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, given
from sessions_app.ahp.versions.v0_1.reducers.status import recomputed
from sessions_app.ahp.versions.v0_1.reducers.turns import BASE, active

_ASKED = ("invocationMessage", "toolInput")
_CHOSEN = "selectedOption"


def _stepped(state: Obj, action: Obj, step: Callable[[Obj], Obj | None]) -> Obj:
    """The state with the action's call in its next state; ``step`` answers None for a call that takes no such step."""
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
    part = {"kind": "toolCall", "toolCall": {**given(action, *BASE), "status": "streaming"}}
    return changed(state, activeTurn=changed(turn, responseParts=[*turn["responseParts"], part]))


def delta(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "streaming":
            return None
        text = (call.get("partialInput") or "") + action["content"]
        return changed(call, partialInput=text, **given(action, "invocationMessage"))

    return _stepped(state, action, step)


def ready(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] not in ("streaming", "running"):
            return None
        known = {**given(call, *BASE), **given(action, *_ASKED)}
        if action.get("confirmed"):
            return {**known, "status": "running", "confirmed": action["confirmed"]}
        shown = given(action, "confirmationTitle", "edits", "editable", "options")
        return {**known, "status": "pending-confirmation", **shown}

    return recomputed(_stepped(state, action, step))


def confirmed(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "pending-confirmation":
            return None
        known = given(call, *BASE, *_ASKED)
        chosen = action.get("selectedOptionId")
        for option in call.get("options") or ():
            if chosen is not None and option["id"] == chosen:
                known[_CHOSEN] = option
                break
        if not action["approved"]:
            return {**known, "status": "cancelled", **given(action, "reason", "reasonMessage", "userSuggestion")}
        # An empty text is an edit too: the person wants the tool to run with nothing.
        if action.get("editedToolInput") is not None:
            known["toolInput"] = action["editedToolInput"]
        return {**known, "status": "running", **given(action, "confirmed")}

    return recomputed(_stepped(state, action, step))


def completed(state: Obj, action: Obj, _now: int) -> Obj:
    after = "pending-result-confirmation" if action.get("requiresResultConfirmation") else "completed"

    def step(call: Obj) -> Obj | None:
        if call["status"] not in ("running", "pending-confirmation"):
            return None
        result = action["result"]
        known = given(call, *BASE, *_ASKED)
        known["confirmed"] = "not-needed"
        if call["status"] == "running":
            known |= given(call, "confirmed", _CHOSEN)
        return {**given(result, *result), **known, "status": after}

    return recomputed(_stepped(state, action, step))


def result_confirmed(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        if call["status"] != "pending-result-confirmation":
            return None
        if action["approved"]:
            return changed(call, status="completed")
        return {**given(call, *BASE, *_ASKED, _CHOSEN), "status": "cancelled", "reason": "result-denied"}

    return recomputed(_stepped(state, action, step))


def content_changed(state: Obj, action: Obj, _now: int) -> Obj:
    def step(call: Obj) -> Obj | None:
        return changed(call, content=action["content"]) if call["status"] == "running" else None

    return _stepped(state, action, step)
