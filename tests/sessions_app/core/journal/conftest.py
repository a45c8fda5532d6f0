"""Tenants, sessions and turns to append events for, and a record of what was announced."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.utils import timezone

from sessions_app.core import broadcast, journal
from sessions_app.core.events import Happening, Kind
from sessions_app.core.journal.types import Announcement, NewEvent
from sessions_app.models import AgentDefinition, Session, Tenant, ToolCall, Turn, TurnState

_numbers = itertools.count(1)


@dataclass
class Announced:
    """Every announcement, in order, from all threads."""

    lists: list[list[Announcement]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, announcements: list[Announcement]) -> None:
        with self.changed:
            self.lists.append(list(announcements))
            self.changed.notify_all()

    @property
    def all(self) -> list[Announcement]:
        with self.changed:
            return [each for some in self.lists for each in some]

    def wait(self, enough: Callable[[], bool], timeout: float = 5) -> None:
        with self.changed:
            assert self.changed.wait_for(enough, timeout), "nothing was announced"


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Announced:
    record = Announced()
    monkeypatch.setattr(broadcast, "announce", record)
    return record


@pytest.fixture(autouse=True)
def _announce_to_nobody(announced: Announced) -> None:
    """No test here has listeners."""


@dataclass
class World:
    """Makes rows that the journal needs beside its own."""

    def tenant(self) -> int:
        tenant = Tenant.objects.create(slug=f"tenant-{next(_numbers)}")
        with journal.transaction():
            journal.create_counter(tenant.pk)
        return tenant.pk

    def session(self, tenant: int) -> int:
        now = timezone.now()
        session = Session.objects.create(
            tenant_id=tenant, public_id=f"sess_{next(_numbers)}", agent_name="echo", created_at=now, modified_at=now
        )
        with journal.transaction():
            journal.create_tail(session.pk)
        return session.pk

    def turn(self, tenant: int, session: int, *, fence: int = 1, state: TurnState = TurnState.RUNNING) -> int:
        """A claimed turn: its fence is in the tail, as a claim leaves it."""
        now = timezone.now()
        definition, _ = AgentDefinition.objects.get_or_create(digest="0" * 64, defaults={"agent_name": "echo", "document": "{}"})
        turn = Turn.objects.create(
            tenant_id=tenant,
            session_id=session,
            public_id=f"turn_{next(_numbers)}",
            definition=definition,
            state=state,
            fence=fence,
            created_at=now,
            queued_at=now,
        )
        self.append(tenant, session, Kind.RUN_STARTED, fence=fence)
        return turn.pk

    def call(self, turn: int, call_id: str, state: str = "pending", *, stored: bool = False) -> int:
        row = Turn.objects.get(pk=turn)
        return ToolCall.objects.create(
            tenant_id=row.tenant_id,
            session_id=row.session_id,
            turn=row,
            call_id=call_id,
            name="weather",
            arguments="{}",
            runner="client",
            state=state,
            stored=stored,
            created_at=timezone.now(),
        ).pk

    def append(
        self, tenant: int, session: int | None, kind: Kind = Kind.SESSION_CREATED, *, fence: int | None = None, **payload: Any
    ) -> int:
        with journal.transaction() as tx:
            tx.append(NewEvent(tenant, session, Happening(kind, payload), fence=fence))
        return tx.stored[0].seq


@pytest.fixture
def world(transactional_db: None) -> World:
    return World()
