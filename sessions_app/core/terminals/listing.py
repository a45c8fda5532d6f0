"""A tenant's list of terminals, which AHP's root state shows, and the event that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sessions_app.core.base.caller import Caller, Sight
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.tenancy import agent_listings
from sessions_app.core.terminals.types import Claim
from sessions_app.models import Terminal, TerminalState

Entry = Mapping[str, Any]


def entry(row: Terminal) -> dict[str, Any]:
    """``agent``, ``line`` and ``session`` are only for ``visible``."""
    found = {"uri": row.uri, "title": row.title, "claim": Claim.read(row.claim).document(), "agent": row.agent, "line": row.line}
    found["session"] = row.claim_session
    if row.state == TerminalState.EXITED:
        found["exited"] = True
    return found if row.exit_code is None else {**found, "code": row.exit_code}


def of(tenant: int) -> list[dict[str, Any]]:
    return [entry(row) for row in Terminal.objects.filter(tenant_id=tenant).order_by("pk")]


def visible(entries: Iterable[Entry], sight: Sight) -> list[Entry]:
    # Events of the previous release have no session.
    return [each for each in entries if sight.may_see_terminal(each["agent"], each["line"], each.get("session"))]


def append_change(tx: journal.Transaction, tenant: int) -> None:
    """Append the new list, after the caller's changes and as its last step.

    The tenant's counter is locked, so that lists are appended in the order in which they were read.
    """
    tx.write()
    journal.lock_counter(tenant, waiting=tx.waiting)
    tx.append(NewEvent(tenant, None, Happening(Kind.TERMINALS_CHANGED, {"terminals": of(tenant)})))


def root(caller: Caller) -> tuple[int, int, list[Mapping[str, Any]], list[Entry]]:
    """The tenant's counter, and the number of sessions, the agents and the terminals that the caller sees, in one snapshot."""
    with journal.snapshot():
        seq, sessions, cards = agent_listings.read_root(caller)
        entries = of(caller.tenant)
    journal.barrier()
    return seq, sessions, cards, visible(entries, caller.sight)
