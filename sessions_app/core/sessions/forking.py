"""Forking: the start of a session is copied into a new one, by SQL, in the transaction that makes it."""

from __future__ import annotations

from agents_app.spec import AgentSpec
from sessions_app.core.base import prepared
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import TurnAlreadyRunning, TurnUnknown
from sessions_app.core.base.prepared import Statement
from sessions_app.core.records import options
from sessions_app.core.sessions import truncating
from sessions_app.core.tenancy import quotas
from sessions_app.models import LIVE_STATES, Measure, Session, Turn

_TURN_COLUMNS = (
    "tenant_id, api_key_id, public_id, definition_id, format, state, stop_reason, error, run, step, parts, takeovers,"
    " input_tokens, output_tokens, cache_read_tokens, created_at, queued_at, started_at, ended_at, provider_closed_at, said"
)
_COPY_TURNS = f"""
insert into sessions_app_turn ({_TURN_COLUMNS}, session_id, fence, worker, attention)
select {_TURN_COLUMNS}, %s, 0, '', false from sessions_app_turn
where session_id = %s and id <= %s and cut_at is null and state in ('done', 'error', 'cancelled') order by id
"""
# The copy of a row's turn, found by the name that both have.
_ITS_TURN = """
(select n.id from sessions_app_turn n join sessions_app_turn o on o.public_id = n.public_id
 where n.session_id = %s and o.id = {table}.turn_id)
"""
_MESSAGE_COLUMNS = (
    "tenant_id, position, role, content, tool_call_id, origin, run, step, provider_data, input_tokens, output_tokens, created_at"
)
_COPY_MESSAGES = f"""
insert into sessions_app_message ({_MESSAGE_COLUMNS}, session_id, turn_id)
select {_MESSAGE_COLUMNS}, %s, {_ITS_TURN.format(table="sessions_app_message")} from sessions_app_message
where session_id = %s and position <= %s and cut_at is null order by position
"""
_CALL_COLUMNS = (
    "tenant_id, call_id, name, arguments, runner, state, step, ordinal, idempotent, failed, reason, result, stored, decided_by,"
    " created_at, decided_at, started_at, finished_at, title, client, why, option, how, suggestion, outcome, shown"
)
_COPY_CALLS = f"""
insert into sessions_app_toolcall ({_CALL_COLUMNS}, session_id, turn_id)
select {_CALL_COLUMNS}, %s, {_ITS_TURN.format(table="sessions_app_toolcall")} from sessions_app_toolcall
where session_id = %s and state in ('done', 'denied') and (turn_id is null or turn_id in
 (select id from sessions_app_turn where session_id = %s and cut_at is null)) order by id
"""
_COPY_COMPACTIONS = """
insert into sessions_app_compaction (tenant_id, covers_through, summary, created_at, session_id)
select tenant_id, covers_through, summary, created_at, %s from sessions_app_compaction
where session_id = %s and covers_through <= %s
"""


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
    row, position = end
    prepared.execute(
        [
            Statement(_COPY_TURNS, (fresh.pk, source.pk, row)),
            Statement(_COPY_MESSAGES, (fresh.pk, fresh.pk, source.pk, position)),
            Statement(_COPY_CALLS, (fresh.pk, fresh.pk, source.pk, source.pk)),
            Statement(_COPY_COMPACTIONS, (fresh.pk, source.pk, position)),
        ]
    )
    title = Session.objects.values_list("title", flat=True).get(pk=source.pk)
    newest = Turn.objects.filter(session=fresh).order_by("-pk").values_list("pk", flat=True).first()
    Session.objects.filter(pk=fresh.pk).update(title=title, failures_seen_through=newest or 0)
    quotas.enter(fresh, Measure.BYTES, quotas.bytes_of_history(fresh))


def options_of(source: Session, spec: AgentSpec) -> dict[str, str]:
    """The source's own, secrets opened: they are sealed anew for the copy."""
    known = {option.name for option in spec.options}
    return {name: value for name, value in options.opened(source.tenant_id, source.pk).items() if name in known}
