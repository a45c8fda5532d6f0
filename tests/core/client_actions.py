"""Actions of AHP clients, and what is stored of them."""

from __future__ import annotations

from typing import Any

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.records import stored_messages
from sessions_app.core.sessions import inbox
from sessions_app.core.sessions.inbox import UserMessage
from sessions_app.models import Session, ToolCall, Turn
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action
from tests.sample_tenants import make_session_of_client

SEED: list[dict[str, Any]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "first"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "looking"},
            {"type": "tool_use", "toolCallId": "c1", "name": "add_one", "input": {"n": 1}},
        ],
    },
    {"role": "tool", "toolCallId": "c1", "content": "2"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "second"},
    {"role": "assistant", "content": "ok"},
]
"""A seed with two turns, one of them with a call."""

OPEN_FILE = {"name": "open_file", "title": "Open a file", "description": "Opens a file"}


def make(world: World, **given: Any) -> Session:
    return make_session_of_client(world.caller, uri=given.pop("uri", "sailor:/one"), agent="sailor", **given)


def start(world: World, session: Session, message: str, turn: str = "t1", **given: Any) -> turns.Accepted:
    said = UserMessage(message)
    return turns.start(
        world.caller, session, content=message, turn_id=turn, as_written=said, only_if_idle=True, dispatched=action(), **given
    )


def state_of(session: Session, turn: str) -> str:
    return Turn.objects.values_list("state", flat=True).get(session=session, public_id=turn)


def ends(session: Session, turn: str, *states: str) -> Turn:
    wanted = states or ("done",)

    def reached() -> Turn | None:
        return Turn.objects.filter(session=session, public_id=turn, state__in=wanted).first()

    found: Turn = wait_for(reached, f"turn {turn} in {wanted}")
    return found


def waiting_call(session: Session, name: str, state: str = "pending") -> ToolCall:
    found: ToolCall = wait_for(
        lambda: ToolCall.objects.filter(session=session, name=name, state=state).first(), f"a {state} call of {name}"
    )
    return found


def said(session: Session) -> list[tuple[str, Any]]:
    return [(line.role, exact_json.loads(line.content)) for line in stored_messages.read(session, "full")]


def put(world: World, session: Session, message: str, id: str = "m1", kind: Any = "queued") -> None:  # noqa: A002 - AHP's word
    inbox.put(world.caller, session, kind, id, UserMessage(message), dispatched=action())
