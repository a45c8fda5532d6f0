"""The one writer of messages, tool calls and a turn's parts.

Most functions return SQL statements. A run hands them to the journal's writer with their events (a journal Unit); a
transaction of a client's request executes them through ``prepared.execute``. `ops/import_rules.py` checks that no other
module of the core inserts or changes these rows. Reading them is in `stored_messages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agents_app import exact_json
from agents_app.runtime.interface import Call, StepMessage
from agents_app.runtime.messages import Content
from sessions_app.core.base import raw_sql
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import usage_entries
from sessions_app.models import (
    LIVE_STATES,
    CallRunner,
    CallState,
    Compaction,
    Message,
    Origin,
    Session,
    ToolCall,
    Turn,
    TurnState,
)

DENIED = "Tool call denied"
CANCELLED = "Tool call denied: cancelled"
WITHHELD = "Tool call denied: the user did not release its result"
REPLACED = "Tool call denied: the user sent a new message instead"


def denial(reason: str) -> str:
    return f"{DENIED}: {reason}" if reason else DENIED


@dataclass(frozen=True, slots=True)
class StepRef:
    """The step that a row belongs to; ``session``, ``turn`` and ``tenant`` are primary keys."""

    tenant: int
    session: int
    turn: int
    run: int
    step: int


# --- messages ------------------------------------------------------------------------------------


def message(
    ref: StepRef,
    role: str,
    content: Content,
    at: datetime,
    *,
    origin: Origin,
    tool_call_id: str | None = None,
    provider_data: str | None = None,
    input_tokens: int = 0,
    output_tokens: int = 0,
) -> list[Statement]:
    """Insert the history's next message and count its bytes.

    Only the session's live turn writes messages, so two inserts never choose the same position.
    """
    text = exact_json.dumps(content)
    insert = Statement(
        "insert into sessions_app_message (tenant_id, session_id, position, role, content, tool_call_id, origin, turn_id, run,"
        " step, provider_data, input_tokens, output_tokens, cut_at, created_at)"
        " values (%s, %s, (select coalesce(max(position), 0) + 1 from sessions_app_message where session_id = %s),"
        " %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, null, %s)",
        (
            ref.tenant,
            ref.session,
            ref.session,
            role,
            text,
            tool_call_id,
            origin.value,
            ref.turn,
            ref.run,
            ref.step,
            provider_data,
            input_tokens,
            output_tokens,
            at,
        ),
    )
    return [insert, usage_entries.bytes_stored(ref.tenant, ref.session, usage_entries.size(text, provider_data))]


def extend_partial_message(ref: StepRef, before: Content, content: Content) -> None:
    """Replace the content of the run's newest model message, if there is one, and count the bytes it grew by."""
    newest = (
        Message.objects.filter(turn_id=ref.turn, run=ref.run, role="assistant", origin=Origin.SERVER)
        .order_by("-position")
        .values_list("pk", flat=True)[:1]
    )
    text = exact_json.dumps(content)
    if Message.objects.filter(pk__in=list(newest)).update(content=text):
        grown = usage_entries.size(text) - usage_entries.size(exact_json.dumps(before))
        raw_sql.execute([usage_entries.bytes_stored(ref.tenant, ref.session, grown)])


def compacted(tenant: int, session: int, through: int, summary: str | None, at: datetime) -> Statement:
    """Models get ``summary`` as a user message instead of the messages up to ``through``; None: they get nothing instead."""
    return Statement(
        "insert into sessions_app_compaction (tenant_id, session_id, covers_through, summary, created_at)"
        " values (%s, %s, %s, %s, %s) on conflict do nothing",
        (tenant, session, through, summary, at),
    )


# --- tool calls ----------------------------------------------------------------------------------


BY_SETTING = "setting"
"""``decided_by`` of a call that ran without asking."""


def new_call(
    ref: StepRef, call: Call, ordinal: int, idempotent: bool, at: datetime, preview: Sequence[Mapping[str, Any]] = ()
) -> Statement:
    """Insert a call as the model made it. A server call that needs no permission is granted by the session's setting.

    ``preview``: the changes of files that a client is asked to permit.
    """
    granted = call.runner == "server" and not call.asks
    decided_by = BY_SETTING if granted else ""
    return Statement(
        "insert into sessions_app_toolcall (tenant_id, session_id, turn_id, call_id, name, arguments, runner, state, step,"
        " ordinal, idempotent, failed, reason, result, stored, decided_by, created_at, decided_at, started_at, finished_at,"
        " title, client, why, preview)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '', null, %s, %s, %s, %s, null, null, %s, %s, %s, %s)",
        (
            ref.tenant,
            ref.session,
            ref.turn,
            call.call_id,
            call.name,
            call.arguments,
            call.runner,
            (CallState.GRANTED if granted else CallState.PENDING).value,
            ref.step,
            ordinal,
            idempotent,
            False,
            False,
            decided_by,
            at,
            at if granted else None,
            call.title,
            call.client,
            call.why,
            exact_json.dumps(list(preview)) if preview else None,
        ),
    )


def call_running(ref: StepRef, call_id: str, at: datetime) -> Statement:
    return Statement(
        "update sessions_app_toolcall set state = 'running', started_at = %s"
        " where session_id = %s and call_id = %s and state in ('pending', 'granted', 'running')",
        (at, ref.session, call_id),
    )


def call_in_review(ref: StepRef, call_id: str, content: Content, at: datetime, *, failed: bool) -> Statement:
    """The tool has finished, and a client has to release its result; the result's message is written then."""
    return Statement(
        "update sessions_app_toolcall set state = 'review', result = %s, failed = %s, finished_at = %s"
        " where session_id = %s and call_id = %s and state in ('pending', 'granted', 'running')",
        (exact_json.dumps(content), failed, at, ref.session, call_id),
    )


def call_final(
    ref: StepRef,
    call_id: str,
    state: Literal[CallState.DONE, CallState.DENIED],
    content: Content,
    at: datetime,
    *,
    failed: bool = False,
    reason: str = "",
    by: str = "",
    stored: bool = True,
    how: str = "",
) -> Statement:
    """The call's final state and result. ``stored`` false: the run in progress writes the result's message."""
    return Statement(
        "update sessions_app_toolcall set state = %s, result = %s, failed = %s, reason = %s, stored = %s,"
        " finished_at = coalesce(finished_at, %s), decided_by = case when %s = '' then decided_by else %s end,"
        " decided_at = case when %s = '' then decided_at else coalesce(decided_at, %s) end, turn_id = %s,"
        " how = %s where session_id = %s and call_id = %s and state in ('pending', 'granted', 'running', 'review')",
        (
            state.value,
            exact_json.dumps(content),
            failed,
            reason,
            stored,
            at,
            by,
            by,
            by,
            at,
            ref.turn,
            how,
            ref.session,
            call_id,
        ),
    )


def call_edits(ref: StepRef, call_id: str, edits: Sequence[Mapping[str, Any]]) -> Statement:
    """The files that the call's tool changed."""
    return Statement(
        "update sessions_app_toolcall set edits = %s where session_id = %s and call_id = %s",
        (exact_json.dumps(list(edits)), ref.session, call_id),
    )


def call_notes(ref: StepRef, call_id: str, *, option: str, suggestion: Any, outcome: Any) -> Statement:
    """What other clients are shown of a decision or a client's result, in addition to its text."""
    return Statement(
        "update sessions_app_toolcall set option = %s, suggestion = %s, outcome = %s where session_id = %s and call_id = %s",
        (option, _json(suggestion), _json(outcome), ref.session, call_id),
    )


def call_progress(call: ToolCall, shown: Sequence[Mapping[str, Any]]) -> Statement:
    """The content that a client shows while its tool runs."""
    return Statement("update sessions_app_toolcall set shown = %s where id = %s", (exact_json.dumps(list(shown)), call.pk))


def call_shows(ref: StepRef, call_id: str, shown: Sequence[Mapping[str, Any]]) -> Statement:
    """The content that the server shows while its tool runs, and terminals that stay after it; empty: none."""
    return Statement(
        "update sessions_app_toolcall set shown = %s where session_id = %s and call_id = %s",
        (exact_json.dumps(list(shown)) if shown else None, ref.session, call_id),
    )


def _json(value: Any) -> str | None:
    return None if value is None else exact_json.dumps(value)


def call_stored(ref: StepRef, call_id: str) -> Statement:
    """The call's result is in the history now."""
    return Statement(
        "update sessions_app_toolcall set stored = %s where session_id = %s and call_id = %s",
        (True, ref.session, call_id),
    )


def call_granted(
    ref: StepRef, call_id: str, by: str, at: datetime, *, option: str = "", arguments: str | None = None, why: str = "user-action"
) -> Statement:
    """``arguments``: replace the call's for this execution; the model's message keeps its own."""
    return Statement(
        "update sessions_app_toolcall set state = 'granted', decided_by = %s, decided_at = %s, turn_id = %s,"
        " why = %s, option = %s, arguments = coalesce(%s, arguments)"
        " where session_id = %s and call_id = %s and state = 'pending'",
        (by, at, ref.turn, why, option, arguments, ref.session, call_id),
    )


def adopt_calls(calls: Sequence[ToolCall], turn: int) -> None:
    """Make a seed's open calls calls of the turn that answers them."""
    ToolCall.objects.filter(pk__in=[call.pk for call in calls]).update(turn_id=turn)


# --- the turn's row ------------------------------------------------------------------------------

_AFTER_STEP = (
    "step = %s, parts = %s, input_tokens = input_tokens + %s, output_tokens = output_tokens + %s,"
    " cache_read_tokens = cache_read_tokens + %s"
)
_ENDED = (
    "state = %s, stop_reason = %s, error = %s, failure = %s, duration_ms = %s, resumable = %s, ended_at = {now},"
    " lease_expires_at = null"
)

Part = Mapping[str, Any]
"""An element of ``Turn.parts``."""


@dataclass(frozen=True, slots=True)
class End:
    """How a turn ends. ``failure``: why, as facts for operators. ``duration_ms`` None: it is cut while it is live.

    ``resumable``: it could be reopened (``turns.reopen``).
    """

    state: TurnState
    stop_reason: str
    error: str
    failure: Mapping[str, Any] | None = None
    duration_ms: int | None = None
    resumable: bool = False

    @property
    def columns(self) -> tuple[Any, ...]:
        return (self.state.value, self.stop_reason, self.error, _json(self.failure), self.duration_ms, self.resumable)


def turn_after_step(
    turn: int, fence: int, step: int, parts: Sequence[Part], tokens: tuple[int, int, int], end: End | None
) -> Statement:
    """Store parts and tokens after a model message. ``tokens`` are this step's: input, output, read from cache.

    ``end``: the turn ends with this message. Both in one statement, because each update writes the whole row again.
    """
    values = (step, exact_json.dumps(list(parts)), *tokens)
    if end is None:
        return Statement(f"update sessions_app_turn set {_AFTER_STEP} where id = %s and fence = %s", (*values, turn, fence))
    return Statement(
        f"update sessions_app_turn set {_AFTER_STEP}, {_ENDED} where id = %s and fence = %s", (*values, *end.columns, turn, fence)
    )


def turn_waiting(turn: int, fence: int) -> Statement:
    return Statement(
        "update sessions_app_turn set state = 'waiting', worker = '', lease_expires_at = null, deadline_at = null"
        " where id = %s and fence = %s",
        (turn, fence),
    )


def turn_handed_over(turn: int, fence: int) -> Statement:
    """Back into the queue, at a commit point, by a worker that shuts down."""
    return Statement(
        "update sessions_app_turn set state = 'queued', worker = '', lease_expires_at = null, queued_at = {now}"
        " where id = %s and fence = %s",
        (turn, fence),
    )


def turn_ended(turn: int, fence: int, end: End) -> Statement:
    return Statement(f"update sessions_app_turn set {_ENDED} where id = %s and fence = %s", (*end.columns, turn, fence))


def end_turn_from_outside(turn: Turn, fence: int, end: End, parts: Sequence[Part]) -> None:
    """End a locked turn outside its run. ``fence``: higher than the run's; ``parts``: those of the open step."""
    raw_sql.execute(
        [
            Statement(
                f"update sessions_app_turn set parts = %s, fence = %s, {_ENDED} where id = %s",
                (_with_parts(turn, parts), fence, *end.columns, turn.pk),
            )
        ]
    )


def supersede_unfinished(turn: Turn, at: datetime) -> None:
    """Hide from models the message that the failed attempt at a turn left unfinished: the next attempt makes its step again.

    Of a turn that failed, every message of the model that was finished has calls.
    """
    raw_sql.execute(
        [
            Statement(
                "update sessions_app_message set superseded_at = %s where turn_id = %s and role = 'assistant'"
                " and superseded_at is null and not exists (select 1 from sessions_app_toolcall c"
                " where c.turn_id = sessions_app_message.turn_id and c.step = sessions_app_message.step)",
                (at, turn.pk),
            )
        ]
    )


def set_open_parts(turn: Turn, parts: Sequence[Part], step: int | None = None) -> None:
    """Store the parts of a locked turn's open step behind those of ``turn``, which was read before. ``step``: its number."""
    raw_sql.execute(
        [
            Statement(
                "update sessions_app_turn set parts = %s, step = coalesce(%s, step) where id = %s",
                (_with_parts(turn, parts), step, turn.pk),
            )
        ]
    )


def _with_parts(turn: Turn, parts: Sequence[Part]) -> str:
    return exact_json.dumps([*exact_json.loads(turn.parts), *parts])


def parts_of(step: StepMessage, titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """A step's parts as ``Turn.parts`` stores them; a call's part only refers to its row.

    A call that the model began and did not complete has no row, but clients have seen it begin. ``titles``: of tools, by
    name.
    """
    parts: list[dict[str, Any]] = []
    for part, kind, value in step.parts:
        if kind == "call" and value in step.given_up:
            name = step.given_up[value]
            parts.append(incomplete_call(part, value, name, titles.get(name, "")))
        elif kind == "call":
            parts.append({"id": part, "kind": kind, "call": value})
        else:
            parts.append({"id": part, "kind": kind, "text": value})
    return parts


def incomplete_call(part: str, call: str, name: str, title: str, client: str | None = None) -> dict[str, Any]:
    """The part of a call that the model began and did not complete."""
    return {"id": part, "kind": "given_up", "call": call, "name": name, "title": title, "client": client}


# --- events of these writes ----------------------------------------------------------------------


def text_events(turn: str, step: int, text: str, thinking: str) -> list[Happening]:
    """The complete text and thinking of a model's message."""
    happenings = []
    if thinking:
        happenings.append(Happening(Kind.THINKING_DONE, {"turn": turn, "step": step, "thinking": thinking}))
    if text:
        happenings.append(Happening(Kind.TEXT_DONE, {"turn": turn, "step": step, "text": text}))
    return happenings


def denied_event(turn: str, call_id: str, reason: str, content: Content, *, shown: bool, **optional: Any) -> Happening:
    """``optional``: optional members of the payload."""
    payload = {"turn": turn, "call": call_id, "reason": reason, "content": content, "shown": shown, **optional}
    return Happening(Kind.CALL_DENIED, payload)


def finished_event(
    turn: str, call_id: str, content: Content, *, failed: bool, by: Literal["server", "client"], shown: bool, **optional: Any
) -> Happening:
    """``optional``: optional members of the payload."""
    return Happening(
        Kind.CALL_FINISHED,
        {"turn": turn, "call": call_id, "content": content, "failed": failed, "by": by, "shown": shown, **optional},
    )


# --- whole histories -----------------------------------------------------------------------------


def add_seed(session: Session, seed: Sequence[dict[str, Any]], client_tools: AbstractSet[str], at: datetime) -> None:
    """Insert a seed's messages and calls; calls of its last assistant message may be pending (A90)."""
    Message.objects.bulk_create(
        [
            Message(
                tenant_id=session.tenant_id,
                session=session,
                position=position,
                role=line["role"],
                content=exact_json.dumps(line["content"]),
                tool_call_id=line.get("toolCallId"),
                origin=Origin.SEED,
                created_at=at,
            )
            for position, line in enumerate(seed, 1)
        ],
        batch_size=500,
    )
    answered = {line["toolCallId"] for line in seed if line["role"] == "tool"}
    not_tool = [index for index, line in enumerate(seed) if line["role"] != "tool"]
    last = not_tool[-1] if not_tool else -1
    rows: dict[str, ToolCall] = {}
    for index, line in enumerate(seed):
        if line["role"] != "assistant" or isinstance(line["content"], str):
            continue
        calls = [block for block in line["content"] if block["type"] == "tool_use"]
        for ordinal, block in enumerate(calls):
            is_done = block["toolCallId"] in answered
            is_open = index == last and not is_done
            rows[block["toolCallId"]] = ToolCall(
                tenant_id=session.tenant_id,
                session=session,
                call_id=block["toolCallId"],
                name=block["name"],
                arguments=exact_json.dumps(block["input"]),
                runner=CallRunner.CLIENT if block["name"] in client_tools else CallRunner.SERVER,
                state=CallState.PENDING if is_open else CallState.DONE if is_done else CallState.DENIED,
                stored=not is_open,
                ordinal=ordinal,
                created_at=at,
                finished_at=None if is_open else at,
            )
    ToolCall.objects.bulk_create(rows.values(), batch_size=500)


def cut(session: Session, row: int, position: int, at: datetime) -> None:
    """Cut the ended turns behind ``row`` and the messages behind ``position``: they leave every history.

    The system messages of a seed stay: they belong to no turn.
    """
    gone = Message.objects.filter(session=session, position__gt=position, cut_at=None)
    gone.exclude(role="system", turn=None).update(cut_at=at)
    Turn.objects.filter(session=session, pk__gt=row, cut_at=None).exclude(state__in=LIVE_STATES).update(cut_at=at)
    Compaction.objects.filter(session=session, covers_through__gt=position).delete()


_TURN_COLUMNS = (
    "tenant_id, api_key_id, public_id, definition_id, format, state, stop_reason, error, run, step, parts, takeovers,"
    " input_tokens, output_tokens, cache_read_tokens, created_at, queued_at, started_at, ended_at, provider_closed_at, said,"
    " began, duration_ms, model, model_named, attempt"
)
_COPY_TURNS = f"""
insert into sessions_app_turn ({_TURN_COLUMNS}, session_id, fence, worker, attention)
select {_TURN_COLUMNS}, %s, 0, '', false from sessions_app_turn
where session_id = %s and id <= %s and cut_at is null and state in ('done', 'error', 'cancelled') order by id
"""
_COPY_ATTEMPTS = """
insert into sessions_app_turnattempt (tenant_id, number, place, run, key_id, error, failure, ended_at, session_id, turn_id)
select a.tenant_id, a.number, a.place, a.run, a.key_id, a.error, a.failure, a.ended_at, %s, n.id from sessions_app_turnattempt a
join sessions_app_turn o on o.id = a.turn_id join sessions_app_turn n on n.session_id = %s and n.public_id = o.public_id
where a.session_id = %s order by a.id
"""
# The copy of a row's turn, found by the public id that both have.
_COPIED_TURN = """
(select n.id from sessions_app_turn n join sessions_app_turn o on o.public_id = n.public_id
 where n.session_id = %s and o.id = {table}.turn_id)
"""
_MESSAGE_COLUMNS = (
    "tenant_id, position, role, content, tool_call_id, origin, run, step, provider_data, input_tokens, output_tokens,"
    " superseded_at, created_at"
)
_COPY_MESSAGES = f"""
insert into sessions_app_message ({_MESSAGE_COLUMNS}, session_id, turn_id)
select {_MESSAGE_COLUMNS}, %s, {_COPIED_TURN.format(table="sessions_app_message")} from sessions_app_message
where session_id = %s and position <= %s and cut_at is null order by position
"""
_CALL_COLUMNS = (
    "tenant_id, call_id, name, arguments, runner, state, step, ordinal, idempotent, failed, reason, result, stored, decided_by,"
    " created_at, decided_at, started_at, finished_at, title, client, why, option, how, suggestion, outcome, shown, edits,"
    " preview"
)
_COPY_CALLS = f"""
insert into sessions_app_toolcall ({_CALL_COLUMNS}, session_id, turn_id)
select {_CALL_COLUMNS}, %s, {_COPIED_TURN.format(table="sessions_app_toolcall")} from sessions_app_toolcall
where session_id = %s and state in ('done', 'denied') and (turn_id is null or turn_id in
 (select id from sessions_app_turn where session_id = %s and cut_at is null)) order by id
"""
_COPY_COMPACTIONS = """
insert into sessions_app_compaction (tenant_id, covers_through, summary, created_at, session_id)
select tenant_id, covers_through, summary, created_at, %s from sessions_app_compaction
where session_id = %s and covers_through <= %s
"""

_FORM_COLUMNS = "tenant_id, call_id, form_id, document, answers, response, place, created_at, closed_at"
_COPY_FORMS = f"""
insert into sessions_app_form ({_FORM_COLUMNS}, session_id, turn_id)
select {_FORM_COLUMNS}, %s, {_COPIED_TURN.format(table="sessions_app_form")} from sessions_app_form
where session_id = %s and turn_id <= %s and turn_id in (select id from sessions_app_turn
 where session_id = %s and cut_at is null and state in ('done', 'error', 'cancelled')) order by id
"""


def copy(source: int, target: int, row: int, position: int) -> None:
    """Copy a history into an empty session: turns up to ``row`` with their forms, messages up to ``position``, final calls.

    A copy of a failed turn cannot be reopened.
    """
    raw_sql.execute(
        [
            Statement(_COPY_TURNS, (target, source, row)),
            Statement(_COPY_ATTEMPTS, (target, target, source)),
            Statement(_COPY_MESSAGES, (target, target, source, position)),
            Statement(_COPY_CALLS, (target, target, source, source)),
            Statement(_COPY_FORMS, (target, target, source, row, source)),
            Statement(_COPY_COMPACTIONS, (target, source, position)),
        ]
    )
