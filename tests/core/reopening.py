"""Turns that fail after a tool has run, for tests that reopen them."""

from __future__ import annotations

from typing import Any

from sessions_app.core import turns
from sessions_app.models import Session, Turn
from tests.core.client_actions import ends
from tests.core.conftest import World
from tests.core.dispatching import action
from tests.fakes.model_server import ModelServer
from tests.fakes.scripted_server import attempts
from tests.fakes.steps import Answer, call, drop, text, thinking, usage

ADD_ONE: list[dict[str, Any]] = [{"name": "add_one", "trust": True}]
ADDS = [text("Adding. "), call("add_one", {"n": 1}, id="c1"), usage(10, 4)]
BREAKS = [thinking("Hm."), text("It is "), call("add_one", {"n": 7}, id="c2"), drop()]
GOES_ON = [text("Two."), usage(20, 2)]


def script(model: ModelServer, *second: Answer) -> str:
    """A tool call, then these answers to the requests of the second step: by default the first one breaks."""
    return model.script(ADDS, attempts(*(second or (BREAKS, GOES_ON))))


def failed(world: World, model: ModelServer, *second: Answer) -> tuple[Session, Turn, str]:
    """A turn that has failed in its second step, and its script; a worker is running."""
    session, said = world.session(tools=ADD_ONE), script(model, *second)
    accepted = world.say(session, said)
    return session, ends(session, accepted.public_id, "error"), said


def reopen(world: World, session: Session, turn: Turn) -> turns.Accepted:
    return turns.reopen(world.caller, session, turn.public_id, dispatched=action("chat/turnResume"))
