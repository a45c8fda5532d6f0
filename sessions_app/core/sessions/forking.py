"""Forking: the start of a session is copied into a new one, by SQL, in the transaction that makes it."""

from __future__ import annotations

from agents_app.spec import AgentSpec
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import TurnAlreadyRunning, TurnUnknown
from sessions_app.core.records import history, options
from sessions_app.core.sessions import truncating
from sessions_app.core.tenancy import quotas
from sessions_app.models import LIVE_STATES, Measure, Session, Turn


def place_of(source: Session, turn: str) -> tuple[int, int]:
    """Where the copy ends; the source is locked. TurnAlreadyRunning if the turn has not ended."""
    end = truncating.end_of(source, turn)
    if end is None:
        if not UNSTORABLE.search(turn) and Turn.objects.filter(session=source, public_id=turn, state__in=LIVE_STATES).exists():
            raise TurnAlreadyRunning(source.public_id)
        raise TurnUnknown
    return end


def copy(source: Session, fresh: Session, end: tuple[int, int]) -> None:
    """Everything up to there: turns, messages, calls that ended, what stands for older messages, the title."""
    history.copy(source.pk, fresh.pk, *end)
    title = Session.objects.values_list("title", flat=True).get(pk=source.pk)
    newest = Turn.objects.filter(session=fresh).order_by("-pk").values_list("pk", flat=True).first()
    Session.objects.filter(pk=fresh.pk).update(title=title, failures_seen_through=newest or 0)
    quotas.enter(fresh, Measure.BYTES, quotas.bytes_of_history(fresh))


def options_of(source: Session, spec: AgentSpec) -> dict[str, str]:
    """The source's own, secrets opened: they are sealed anew for the copy."""
    known = {option.name for option in spec.options}
    return {name: value for name, value in options.opened(source.tenant_id, source.pk).items() if name in known}
