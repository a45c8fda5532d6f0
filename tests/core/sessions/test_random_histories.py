"""Random histories, while a worker runs: every state that a client may have seen leads to the present one, in each version.

A client of AHP 0.1, 0.9 or 1.0 may take its snapshot after any of these actions; what it folds after that must be what a
new client gets.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from agents_app.spec import AgentSpec, ToolSpec
from agents_app.tools import questions
from sessions_app.core import turns
from sessions_app.core.base.errors import DomainError
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.records import clients, session_changes
from sessions_app.core.sessions import forms, inbox, truncating
from sessions_app.core.turns import Decision, Outcome
from sessions_app.models import LIVE_STATES, CallRunner, CallState, Form, Session, ToolCall, Turn, TurnState
from tests.core import tools
from tests.core.client_actions import make, put
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action
from tests.core.law import Seen
from tests.fakes.model_server import ModelServer
from tests.fakes.scripted_server import attempts
from tests.fakes.steps import call, drop, status, text, thinking

ASKED = [{"id": "name", "kind": "text", "message": "Name?"}]
OWN = {"name": "open_file", "description": "Opens a file"}
STEPS = 40


@pytest.fixture
def asking(agents: Callable[..., AgentSpec]) -> AgentSpec:
    spec = agents()
    return agents(tools=(*spec.tools, ToolSpec("ask_user", questions.SOURCE, parameters=questions.PARAMETERS)))


class History:
    """One session, and clients that do what comes to their minds."""

    def __init__(self, world: World, model: ModelServer, seed: int) -> None:
        self.world, self.caller, self.model = world, world.caller, model
        self.random = random.Random(seed)
        self.session = make(world)
        self.seen: list[Seen] = []
        self.failing = 0.0
        """How often a turn fails after its first step, so that it can be reopened."""
        self._number = 0

    def _next(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def _script(self) -> str:
        calls = {
            "add_one": {"n": 1},
            "blow_up": {"n": 2},
            "ask_user": {"message": "You?", "questions": ASKED},
            "open_file": {"path": "a"},
        }
        some = self.random.sample(sorted(calls), self.random.randint(0, 3))
        first = [thinking("hm"), text("so "), *(call(name, calls[name]) for name in some)]
        if self.random.random() < 0.15 and not self.failing:
            return self.model.script([status(400)])
        if self.random.random() < self.failing:
            # Some attempts at a step break in the middle of a call, or before any output.
            broken = [thinking("hm"), text("half"), call("add_one", {"n": 3}), drop()]
            failed = [broken, [status(500)], broken][: self.random.randint(1, 3)]
            again = [text("again"), call("add_one", {"n": 4})]
            return self.model.script(attempts(*failed, first), attempts(*failed, again), [text("done")])
        return self.model.script(first, [text("done")]) if some else self.model.script(first)

    # --- what clients do ---

    def say(self) -> None:
        message = UserMessage(self._script(), model=None)
        began = self.random.choice([None, "2020-01-01T00:00:00Z", "2031-05-05T10:00:00.123+02:00"])
        turns.start(
            self.caller,
            self.session,
            content=message.text,
            turn_id=self._next("t"),
            as_written=message,
            only_if_idle=self.random.random() < 0.7,
            started_at=began,
            dispatched=action(),
        )

    def decide(self) -> None:
        row = ToolCall.objects.filter(session=self.session, state=CallState.PENDING, runner=CallRunner.SERVER).first()
        if row is not None and row.turn is not None:
            approved = self.random.random() < 0.7
            decision = Decision(approved=approved, reason="" if approved else "no")
            turns.confirm(self.caller, self.session, row.turn.public_id, row.call_id, decision, dispatched=action())

    def complete(self) -> None:
        row = ToolCall.objects.filter(session=self.session, state=CallState.PENDING, client="c1").first()
        if row is None or row.turn is None:
            return
        turn, shown = row.turn.public_id, [{"type": "text", "text": "half"}]
        if self.random.random() < 0.4:
            turns.show_content(self.caller, self.session, turn, row.call_id, shown, dispatched=action())
        else:
            outcome = Outcome(success=self.random.random() < 0.8, message="Opened", content=shown)
            reviewed = self.random.random() < 0.5
            turns.complete(self.caller, self.session, turn, row.call_id, outcome, reviewed=reviewed, dispatched=action())

    def review(self) -> None:
        row = ToolCall.objects.filter(session=self.session, state=CallState.REVIEW).first()
        if row is not None and row.turn is not None:
            approved = self.random.random() < 0.5
            turns.confirm_result(
                self.caller, self.session, row.turn.public_id, row.call_id, approved=approved, dispatched=action()
            )

    def answer(self) -> None:
        row = Form.objects.filter(session=self.session, response="").first()
        if row is None:
            return
        state = "draft" if self.random.random() < 0.5 else "submitted"
        answer = {"state": state, "value": {"kind": "text", "value": "Bree"}}
        if state == "draft":
            forms.change_answer(self.caller, self.session, row.form_id, "name", answer, dispatched=action())
        else:
            response: Any = self.random.choice(["accept", "decline", "cancel"])
            given = {"name": answer} if self.random.random() < 0.5 else None
            forms.complete(self.caller, self.session, row.form_id, response, given, dispatched=action())

    def cancel(self) -> None:
        live = Turn.objects.filter(session=self.session, state__in=LIVE_STATES).first()
        if live is not None:
            lasted = self.random.choice([None, 0, 1500])
            turns.cancel_turn(self.caller, self.session, live.public_id, duration_ms=lasted, dispatched=action())

    def resume(self) -> None:
        self.pause()
        last = Turn.objects.filter(session=self.session, cut_at=None).order_by("-pk").first()
        if last is not None:
            turns.reopen(self.caller, self.session, last.public_id, dispatched=action())

    def queue(self) -> None:
        put(self.world, self.session, self._script(), self._next("m"), self.random.choice(["queued", "steering"]))

    def unqueue(self) -> None:
        inbox.remove(self.caller, self.session, "queued", f"m{self._number}", dispatched=action())

    def rename(self) -> None:
        session_changes.rename(self.caller, self.session, self._next("title "), dispatched=action())

    def mark(self) -> None:
        mark: Any = self.random.choice([session_changes.mark_read, session_changes.mark_chat_read])
        mark(self.caller, self.session, read=self.random.random() < 0.8, dispatched=action())

    def archive(self) -> None:
        session_changes.archive(self.caller, self.session, archived=self.random.random() < 0.5, dispatched=action())

    def draft(self) -> None:
        draft = self.random.choice([None, {"text": "not yet", "origin": {"kind": "user"}}])
        session_changes.change_draft(self.caller, self.session, draft, dispatched=action())

    def truncate(self) -> None:
        ended = [turn for turn in Turn.objects.filter(session=self.session, cut_at=None) if turn.state not in LIVE_STATES]
        kept = self.random.choice([None, *(turn.public_id for turn in ended)])
        truncating.truncate(self.caller, self.session, kept, dispatched=action())

    def join(self) -> None:
        clients.join(self.caller, self.session, clients.Entry("c1", "Bridge", [OWN]), dispatched=action())

    def leave(self) -> None:
        if self.random.random() < 0.2:
            clients.leave(self.caller, self.session, "c1", dispatched=action())

    def pause(self) -> None:
        """Until the run has done what it can without clients."""
        busy = Turn.objects.filter(session=self.session, state__in=[TurnState.QUEUED, TurnState.RUNNING])
        wait_for(lambda: not busy.exists(), "no run")

    def act(self) -> None:
        common = [self.say, self.decide, self.complete, self.review, self.answer, self.pause]
        rare = [
            *(self.cancel, self.queue, self.unqueue, self.rename, self.mark, self.archive, self.draft, self.truncate),
            *(self.join, self.leave),
        ]
        with suppress(DomainError):
            often = [*common, self.resume, self.resume] if self.failing else common
            self.random.choice(often if self.random.random() < 0.7 else rare)()
        self.seen.append(Seen.of(self.caller, self.session))

    def settle(self) -> None:
        """Until no turn is live: a queued message may start one."""

        def idle() -> bool:
            with suppress(DomainError):
                self.cancel()
            return not Turn.objects.filter(session=self.session, state__in=LIVE_STATES).exists()

        wait_for(idle, "no live turn")


@pytest.mark.rule("V56", "R65", "V104", "V109", "V208")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_every_state_leads_to_the_present_one_in_every_version(
    seed: int, alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    tools.forget()
    start_worker()
    live(History(alice, model, seed))


def live(history: History, steps: int = STEPS) -> None:
    history.join()
    for _ in range(steps):
        history.act()
    history.settle()
    now = Seen.of(history.caller, history.session)
    for seen in history.seen:
        seen.must_lead_to(Session.objects.get(pk=history.session.pk), now)


@pytest.mark.rule("V56", "V146", "V503")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_histories_in_which_turns_fail_and_are_reopened(
    seed: int, alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    tools.forget()
    start_worker()
    history = History(alice, model, seed)
    history.failing = 0.9
    history.say()
    live(history, STEPS // 2)
    assert Turn.objects.filter(session=history.session, attempt__gt=1).exists(), "no turn was reopened: take another seed"
