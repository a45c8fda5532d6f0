"""What a client of AHP sends, as its face hands it to the core."""

from __future__ import annotations

import itertools
from typing import Any

from agents_app import exact_json
from sessions_app.core.log import journal
from sessions_app.core.records.conversation import FOLLOWING
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.models import Session

_numbers = itertools.count(1)


def action(kind: str = "session/x", client: str = "c1", connection: str = "w1", **said: Any) -> Dispatched:
    """An action of a client, each with a number of its own."""
    return Dispatched(client, connection, "life", next(_numbers), "ahp/0.1", {"type": kind, **said})


def events(session: Session, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
    """The session's events in order, of these kinds, without their origins.

    Without a name all are meant but those that follow from others (core.records.conversation).
    """
    read = journal.read_session(session.tenant_id, session.pk, 0, limit=10_000)
    shown = [event for event in read.events if (event.kind in kinds if kinds else event.kind not in FOLLOWING)]
    found = [(event.kind, exact_json.loads(event.data)) for event in shown]
    for _, payload in found:
        payload.pop("origin", None)
    return found


def of_tenant(tenant: int, *kinds: str) -> list[dict[str, Any]]:
    """Payloads of the tenant's events in order, of these kinds."""
    read = journal.read_tenant(tenant, 0, limit=10_000)
    return [exact_json.loads(event.data) for event in read.events if event.kind in kinds]
