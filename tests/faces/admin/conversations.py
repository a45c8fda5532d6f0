"""Conversations written as rows, with whatever a page has to show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from agents_app import exact_json
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.tenancy import tenants
from sessions_app.models import (
    AgentDefinition,
    CallRunner,
    CallState,
    Message,
    Origin,
    Session,
    Tenant,
    ToolCall,
    Turn,
    TurnState,
)

START = datetime(2025, 3, 1, 9, 30, 0, tzinfo=UTC)


def make_tenant(slug: str = "acme") -> Tenant:
    return tenants.create(slug)[0]


def make_session(tenant: Tenant, **given: Any) -> Session:
    fields = {"public_id": new_id("sess"), "agent_name": "demo", "created_at": START, "modified_at": START}
    return Session.objects.create(tenant=tenant, **{**fields, **given})


def make_turn(session: Session, state: TurnState = TurnState.DONE, **given: Any) -> Turn:
    definition, _ = AgentDefinition.objects.get_or_create(digest="d" * 64, defaults={"agent_name": "demo", "document": "{}"})
    live = state in (TurnState.QUEUED, TurnState.RUNNING, TurnState.WAITING)
    fields = {
        "public_id": new_id("turn"),
        "definition": definition,
        "state": state,
        "created_at": START,
        "queued_at": START,
        "ended_at": None if live else START + timedelta(seconds=4.2),
        "stop_reason": "end_turn" if state == TurnState.DONE else "",
    }
    return Turn.objects.create(tenant=session.tenant, session=session, **{**fields, **given})


def say(session: Session, role: str, content: Any, turn: Turn | None = None, **given: Any) -> Message:
    """The next line of the session."""
    position = Message.objects.filter(session=session).count() + 1
    fields = {
        "role": role,
        "content": exact_json.dumps(content),
        "origin": Origin.SEED if turn is None else Origin.SERVER,
        "created_at": START + timedelta(seconds=position),
    }
    return Message.objects.create(tenant=session.tenant, session=session, turn=turn, position=position, **{**fields, **given})


def call(session: Session, turn: Turn | None, call_id: str, name: str, **given: Any) -> ToolCall:
    fields = {
        "arguments": "{}",
        "runner": CallRunner.SERVER,
        "state": CallState.DONE,
        "decided_by": "setting",
        "stored": True,
        "created_at": START,
        "started_at": START + timedelta(seconds=1),
        "finished_at": START + timedelta(seconds=2.5),
    }
    return ToolCall.objects.create(
        tenant=session.tenant, session=session, turn=turn, call_id=call_id, name=name, **{**fields, **given}
    )


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def call_block(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "toolCallId": call_id, "name": name, "input": arguments}


def with_a_tool(session: Session) -> Turn:
    """A question, a thought, a permitted call with its result, an answer."""
    turn = make_turn(session, run=2, step=2, input_tokens=1234, output_tokens=56)
    say(session, "user", "What is 6 times 7?", turn, origin=Origin.CLIENT)
    thought = {"type": "thinking", "thinking": "I should calculate."}
    say(
        session,
        "assistant",
        [thought, text_block("Let me see."), call_block("call_1", "calculator", {"expression": "6*7"})],
        turn,
        step=1,
        input_tokens=600,
        output_tokens=30,
    )
    call(session, turn, "call_1", "calculator", decided_by="client", decided_at=START + timedelta(seconds=0.5))
    say(session, "tool", "42", turn, tool_call_id="call_1", step=1)
    say(session, "assistant", "It is 42.", turn, step=2, input_tokens=634, output_tokens=26)
    return turn
