"""States and actions for the tests of reducers: whole by default, each test says what it looks at."""

from __future__ import annotations

from typing import Any, cast

from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from sessions_app.ahp.versions.v0_1.wire import envelopes
from sessions_app.ahp.versions.v0_1.wire.state import SessionState
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalState
from sessions_app.core.base.shapes import Shape

SESSION = "echo:/1"
TERMINAL = "agenthost:/terminal/1"
THEN = 1_000
NOW = 9_000

SESSION_STATE: Shape[SessionState] = Shape(SessionState)
TERMINAL_STATE: Shape[TerminalState] = Shape(TerminalState)

State = dict[str, Any]


def session(*, status: int = 1, **members: Any) -> State:
    state = cast(State, v0_1.session_state(SESSION, "echo", created_at=THEN, title="Talk", lifecycle="ready"))
    state["summary"]["status"] = status
    return {**state, **members}


def running(*parts: State, status: int = 8, **members: Any) -> State:
    """A session whose turn ``t`` is active, with these parts."""
    turn = {"id": "t", "userMessage": {"text": "Hello"}, "responseParts": list(parts)}
    return {**session(status=status, activeTurn=turn), **members}


def markdown(part_id: str, content: str = "") -> State:
    return {"kind": "markdown", "id": part_id, "content": content}


def reasoning(part_id: str, content: str = "") -> State:
    return {"kind": "reasoning", "id": part_id, "content": content}


def call(status: str, call_id: str = "c", **members: Any) -> State:
    """A part with a call in that state, whole by the schema."""
    held: State = {"toolCallId": call_id, "toolName": "look", "displayName": "Look", "status": status}
    if status != "streaming":
        held |= {"invocationMessage": "Looking", "toolInput": '{"a":1}'}
    if status in ("running", "pending-result-confirmation", "completed"):
        held["confirmed"] = "user-action"
    if status in ("pending-result-confirmation", "completed"):
        held |= {"success": True, "pastTenseMessage": "Looked"}
    if status == "cancelled":
        held["reason"] = "denied"
    return {"kind": "toolCall", "toolCall": {**held, **members}}


def turn(turn_id: str, *parts: State, how: str = "complete") -> State:
    return {"id": turn_id, "userMessage": {"text": turn_id}, "responseParts": list(parts), "state": how}


def message(message_id: str, text: str = "") -> State:
    return {"id": message_id, "userMessage": {"text": text or message_id}}


def act(kind: str, /, **members: Any) -> State:
    """An action that a client could have sent or the host could send."""
    action = {"type": f"session/{kind}", "session": SESSION, **members}
    assert envelopes.ACTION.faults(action) == [], action
    return action


def of_turn(kind: str, /, **members: Any) -> State:
    return act(kind, **{"turnId": "t", **members})


def of_call(kind: str, /, **members: Any) -> State:
    return of_turn(kind, **{"toolCallId": "c", **members})


def terminal_act(kind: str, /, **members: Any) -> State:
    action = {"type": f"terminal/{kind}", "terminal": TERMINAL, **members}
    assert envelopes.ACTION.faults(action) == [], action
    return action


def after(state: State, *actions: State, now: int = NOW) -> State:
    """The state that the actions lead to; it fits the schema, if only one did."""
    for action in actions:
        state = cast(State, v0_1.reduce_session(cast(SessionState, state), action, now))
    assert SESSION_STATE.faults(state) == []
    return state


def terminal_after(state: State, *actions: State) -> State:
    for action in actions:
        state = cast(State, v0_1.reduce_terminal(cast(TerminalState, state), action, NOW))
    assert TERMINAL_STATE.faults(state) == []
    return state


def status(state: State) -> int:
    return int(state["summary"]["status"])


def touched(state: State) -> bool:
    return bool(state["summary"]["modifiedAt"] == NOW)


def the_call(state: State) -> State:
    """The call of the active turn, or of the last one."""
    parts = (state.get("activeTurn") or state["turns"][-1])["responseParts"]
    return cast(State, next(part["toolCall"] for part in parts if part["kind"] == "toolCall"))
