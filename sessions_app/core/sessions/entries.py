"""Sessions as AHP's list shows them: title, state, flags, times. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Max, OuterRef, Q, Subquery

from sessions_app.core.base import byte_budget
from sessions_app.core.base.caller import Caller
from sessions_app.core.records import addresses, conversation_facts, file_edits, options
from sessions_app.core.tenancy import access, agent_listings, agents, api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import LIVE_STATES, CallRunner, CallState, Form, Session, ToolCall, Turn, TurnState

State = Literal["idle", "failed", "working", "waiting"]


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """``state`` "waiting": the turn waits for a user. ``model`` None: the agent is not available any more. ``diffs`` None: its
    agent never changed a file. ``family``: of the version of AHP in which a client chose the URI; "" if none did.
    ``chat_modified_at``: when its newest turn began or ended, as a text (core.base.times)."""

    session: int
    public_id: str
    uri: str
    agent: str
    title: str
    state: State
    read: bool
    archived: bool
    created_at: datetime
    modified_at: datetime
    model: str | None
    activity: str | None
    directory: str | None
    diffs: list[file_edits.Edit] | None = None
    family: str = ""
    chat_read: bool = False
    chat_modified_at: str = ""


# The hour has an index; it and the time have the same order.
_NEWEST_FIRST = ("-modified_hour", "-modified_at", "-pk")


def activity_of(titles: Sequence[str]) -> str | None:
    """The activity that is shown while these server tools run; None: there is none."""
    return f"Running {', '.join(sorted(titles))}" if titles else None


def listed(caller: Caller, limit: int = 1000) -> list[SessionEntry]:
    """The sessions that exist for the caller, the most recently modified first, archived ones last."""
    api_audit.read(caller, Action.SESSIONS_LISTED, "sessions")
    rows: list[Session] = []
    for archived in (False, True):
        some = access.visible(caller).filter(archived=archived).order_by(*_NEWEST_FIRST)
        rows += some[: limit - len(rows)]
    found = _entries(rows)
    # With the URIs of their contents, which have the session's URI in them.
    byte_budget.reserve(sum(len(each.diffs or ()) * (600 + 2 * len(each.uri)) for each in found.values()))
    return sorted(found.values(), key=lambda each: (each.archived, -each.modified_at.timestamp(), -each.session))


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the list of sessions: behind this one."""

    modified_at: str
    row: int

    @staticmethod
    def of(modified_at: str, row: int) -> Position:
        """ValueError if there can be no such position."""
        at = datetime.fromisoformat(modified_at)
        if at.tzinfo is None or not 1970 <= at.year < 9999 or not 0 <= row < 2**63:
            raise ValueError(modified_at)
        return Position(modified_at, row)


@dataclass(frozen=True, slots=True)
class Page:
    """``next``: the position of the page behind it; None: there is none."""

    entries: list[SessionEntry]
    next: Position | None


def page(caller: Caller, limit: int, after: Position | None) -> Page:
    """Sessions that exist for the caller, the most recently modified first."""
    api_audit.read(caller, Action.SESSIONS_LISTED, "sessions")
    wanted = access.visible(caller).order_by("-modified_hour", "-modified_at", "-pk")
    if after is not None:
        at = datetime.fromisoformat(after.modified_at)
        hour = int(at.timestamp() // 3600)
        # Not "less than": SQLite compares texts, and not all of them have six digits of a second.
        before = at - timedelta(microseconds=1)
        older = Q(modified_at__lte=before) | Q(modified_at__gt=before, modified_at__lte=at, pk__lt=after.row)
        wanted = wanted.filter(older, modified_hour__lte=hour)
    rows = list(wanted[: limit + 1])
    shown = rows[:limit]
    found = _entries(shown)
    more = Position(shown[-1].modified_at.isoformat(), shown[-1].pk) if len(rows) > limit else None
    return Page([found[row.pk] for row in shown], more)


def sessions_of(tenant: int, agent_names: Collection[str], limit: int = 1000) -> list[int]:
    """The primary keys of these agents' most recently modified sessions."""
    rows = Session.objects.filter(tenant_id=tenant, agent_name__in=list(agent_names)).order_by(*_NEWEST_FIRST)
    return list(rows.values_list("pk", flat=True)[:limit])


def of(tenant: int, session_ids: Collection[int]) -> dict[int, SessionEntry]:
    """By primary key, without deleted sessions."""
    return _entries(list(Session.objects.filter(tenant_id=tenant, pk__in=list(session_ids))))


def _entries(rows: Sequence[Session]) -> dict[int, SessionEntry]:
    if not rows:
        return {}
    ids = [row.pk for row in rows]
    chosen = addresses.families_of(ids)
    stored = options.shown(ids)
    specs = agent_listings.of(rows[0].tenant_id).specs
    turns, newest = _last_turns(ids)
    live = [turn.pk for turn in turns.values() if turn.state in LIVE_STATES]
    waiting, running = _waiting_and_running(live)
    diffs = file_edits.of_sessions(ids)
    asked = _newest_forms([row.pk for row in rows if row.read or row.chat_read])
    return {
        row.pk: SessionEntry(
            session=row.pk,
            public_id=row.public_id,
            uri=chosen[row.pk][0] if row.pk in chosen else addresses.default(row.agent_name, row.public_id),
            agent=row.agent_name,
            title=row.title or "",
            state=_state(row, turns.get(row.pk), waiting),
            read=row.read and asked.get(row.pk, 0) <= row.read_forms,
            archived=row.archived,
            created_at=row.created_at,
            modified_at=_modified(row, turns.get(row.pk)),
            model=None if (spec := specs.get(row.agent_name)) is None else agents.model_in_force(spec, stored.get(row.pk, {})),
            activity=activity_of(running.get(turns[row.pk].pk, [])) if row.pk in turns else None,
            directory=row.directory,
            diffs=diffs.get(row.pk),
            family=chosen[row.pk][1] if row.pk in chosen else "",
            chat_read=row.chat_read and asked.get(row.pk, 0) <= row.chat_read_forms,
            chat_modified_at=conversation_facts.chat_modified(row, newest.get(row.pk)),
        )
        for row in rows
    }


def _last_turns(sessions: Sequence[int]) -> tuple[dict[int, Turn], dict[int, Turn]]:
    """The last turn of each history, and the one that began or was reopened last, which may be cut from it."""
    turns = Turn.objects.filter(session=OuterRef("pk")).order_by("-pk").values("pk")
    found = Session.objects.filter(pk__in=sessions).annotate(
        last=Subquery(turns.filter(cut_at=None)[:1]), newest=Subquery(turns.exclude(chat_modified="")[:1])
    )
    # Two queries: with one, the planner reads the whole table of turns for a long list.
    wanted = {turn for pair in found.values_list("last", "newest") for turn in pair if turn is not None}
    fields = ("pk", "session_id", "state", "ended_at", "created_at", "began", "duration_ms", "cut_at", "chat_modified")
    rows = list(Turn.objects.filter(pk__in=wanted).only(*fields).order_by("pk"))
    return {turn.session_id: turn for turn in rows if turn.cut_at is None}, {turn.session_id: turn for turn in rows}


def _waiting_and_running(live: Sequence[int]) -> tuple[set[int], dict[int, list[str]]]:
    """The turns that wait for a user, and the titles of the server tools that each turn is running."""
    waiting: set[int] = set()
    running: dict[int, list[str]] = {}
    if not live:
        return waiting, running
    waiting.update(Form.objects.filter(turn_id__in=live, response="").values_list("turn_id", flat=True))
    waiting.update(
        ToolCall.objects.filter(conversation_facts.NEEDS_USER, turn_id__in=live)
        .values_list("turn_id", flat=True)
        .order_by()
        .distinct()
    )
    calls = ToolCall.objects.filter(turn_id__in=live, state=CallState.RUNNING, runner=CallRunner.SERVER)
    for turn, title, name in calls.order_by("step", "ordinal", "pk").values_list("turn_id", "title", "name"):
        running.setdefault(turn or 0, []).append(title or name)
    return waiting, running


def _newest_forms(sessions: Sequence[int]) -> dict[int, int]:
    """The newest form of each session. A new form makes its session unread; runs insert forms without locking the session."""
    if not sessions:
        return {}
    newest = Form.objects.filter(session_id__in=sessions).values("session_id").annotate(newest=Max("pk"))
    return dict(newest.values_list("session_id", "newest"))


def _state(row: Session, turn: Turn | None, waiting: Collection[int]) -> State:
    if turn is None:
        return "idle"
    if turn.state in LIVE_STATES:
        return "waiting" if turn.pk in waiting else "working"
    return "failed" if turn.state == TurnState.ERROR and turn.pk > row.failures_seen_through else "idle"


def _modified(row: Session, turn: Turn | None) -> datetime:
    return row.modified_at if turn is None or turn.ended_at is None else max(row.modified_at, turn.ended_at)
