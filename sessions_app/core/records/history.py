"""The records of a turn: the one module that writes messages, tool calls and a turn's parts.

A commit point of a run is a list of SQL statements with its events (a journal Unit); a web
transaction runs the same statements through ``prepared.execute``. Reading histories is here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agents_app import compaction, exact_json, registry
from agents_app import options as agent_options
from agents_app.runtime.interface import Call, StepMessage
from agents_app.runtime.messages import Content, Message, calls_of
from sessions_app import models
from sessions_app.core.base import prepared
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.prepared import Statement
from sessions_app.core.records import options, session_settings
from sessions_app.core.tenancy import quotas
from sessions_app.models import CallRunner, CallState, Origin, Session, ToolCall, Turn, TurnState

DENIED = "Tool call denied"
CANCELLED = "Tool call denied: cancelled"
WITHHELD = "Tool call denied: the user did not release its result"
REPLACED = "Tool call denied: the user sent a new message instead"
INTERRUPTED = "Tool execution failed: interrupted, it may have run"


@dataclass(frozen=True, slots=True)
class Line:
    """A message as histories show it. ``content`` is JSON text."""

    role: str
    content: str
    tool_call_id: str | None


def denial(reason: str) -> str:
    return f"{DENIED}: {reason}" if reason else DENIED


# --- statements ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record belongs."""

    tenant: int
    session: int
    turn: int
    run: int
    step: int


def message(
    place: Place,
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
    """The next line of the history, and its bytes. The session's live turn is the only writer, so positions cannot collide."""
    text = exact_json.dumps(content)
    line = Statement(
        "insert into sessions_app_message (tenant_id, session_id, position, role, content, tool_call_id, origin, turn_id, run,"
        " step, provider_data, input_tokens, output_tokens, cut_at, created_at)"
        " values (%s, %s, (select coalesce(max(position), 0) + 1 from sessions_app_message where session_id = %s),"
        " %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, null, %s)",
        (
            place.tenant,
            place.session,
            place.session,
            role,
            text,
            tool_call_id,
            origin.value,
            place.turn,
            place.run,
            place.step,
            provider_data,
            input_tokens,
            output_tokens,
            at,
        ),
    )
    return [line, quotas.stored(place.tenant, place.session, quotas.size(text, provider_data))]


def new_call(place: Place, call: Call, ordinal: int, idempotent: bool, at: datetime) -> Statement:
    """A call as the model made it. One that needs nobody's word is granted by the session's setting."""
    free = call.runner == "server" and not call.asks
    decided_by = "setting" if free else ""
    return Statement(
        "insert into sessions_app_toolcall (tenant_id, session_id, turn_id, call_id, name, arguments, runner, state, step,"
        " ordinal, idempotent, failed, reason, result, stored, decided_by, created_at, decided_at, started_at, finished_at,"
        " title, client, why)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '', null, %s, %s, %s, %s, null, null, %s, %s, %s)",
        (
            place.tenant,
            place.session,
            place.turn,
            call.call_id,
            call.name,
            call.arguments,
            call.runner,
            (CallState.GRANTED if free else CallState.PENDING).value,
            place.step,
            ordinal,
            idempotent,
            False,
            False,
            decided_by,
            at,
            at if free else None,
            call.title,
            call.client,
            call.why,
        ),
    )


def call_running(place: Place, call_id: str, at: datetime) -> Statement:
    return Statement(
        "update sessions_app_toolcall set state = 'running', started_at = %s"
        " where session_id = %s and call_id = %s and state in ('pending', 'granted', 'running')",
        (at, place.session, call_id),
    )


def call_reviewed(place: Place, call_id: str, content: Content, at: datetime, *, failed: bool) -> Statement:
    """The tool is done, and its result waits for a client's word; its message is written then."""
    return Statement(
        "update sessions_app_toolcall set state = 'review', result = %s, failed = %s, finished_at = %s"
        " where session_id = %s and call_id = %s and state in ('pending', 'granted', 'running')",
        (exact_json.dumps(content), failed, at, place.session, call_id),
    )


def call_final(
    place: Place,
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
    """The call's end. ``stored`` false: its message is written by the run that finds it (it is running now)."""
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
            place.turn,
            how,
            place.session,
            call_id,
        ),
    )


def call_told(place: Place, call_id: str, *, option: str, suggestion: Any, outcome: Any) -> Statement:
    """What a client says of its decision or its result besides; as it is shown to other clients."""
    return Statement(
        "update sessions_app_toolcall set option = %s, suggestion = %s, outcome = %s where session_id = %s and call_id = %s",
        (option, _json(suggestion), _json(outcome), place.session, call_id),
    )


def _json(value: Any) -> str | None:
    return None if value is None else exact_json.dumps(value)


def call_stored(place: Place, call_id: str) -> Statement:
    return Statement(
        "update sessions_app_toolcall set stored = %s where session_id = %s and call_id = %s",
        (True, place.session, call_id),
    )


def call_granted(
    place: Place, call_id: str, by: str, at: datetime, *, option: str = "", arguments: str | None = None, why: str = "user-action"
) -> Statement:
    """``arguments``: what a client has made of the call's; the model's own stay in its message."""
    return Statement(
        "update sessions_app_toolcall set state = 'granted', decided_by = %s, decided_at = %s, turn_id = %s,"
        " why = %s, option = %s, arguments = coalesce(%s, arguments)"
        " where session_id = %s and call_id = %s and state = 'pending'",
        (by, at, place.turn, why, option, arguments, place.session, call_id),
    )


_AFTER_STEP = (
    "step = %s, parts = %s, input_tokens = input_tokens + %s, output_tokens = output_tokens + %s,"
    " cache_read_tokens = cache_read_tokens + %s"
)
_OVER = "state = %s, stop_reason = %s, error = %s, failure = %s, ended_at = {now}, lease_expires_at = null"


@dataclass(frozen=True, slots=True)
class End:
    """How a turn ends. ``failure``: why, as facts for operators."""

    state: TurnState
    stop_reason: str
    error: str
    failure: Mapping[str, Any] | None = None

    @property
    def columns(self) -> tuple[Any, ...]:
        return (self.state.value, self.stop_reason, self.error, _json(self.failure))


def turn_after_step(
    turn: int, fence: int, step: int, parts: Sequence[dict[str, Any]], tokens: tuple[int, int, int], end: End | None
) -> Statement:
    """Parts and tokens after a model message. ``tokens`` are this step's: input, output, read from cache.

    ``end``: the turn is over with it. One statement, because each writes the whole row anew.
    """
    said = (step, exact_json.dumps(list(parts)), *tokens)
    if end is None:
        return Statement(f"update sessions_app_turn set {_AFTER_STEP} where id = %s and fence = %s", (*said, turn, fence))
    return Statement(
        f"update sessions_app_turn set {_AFTER_STEP}, {_OVER} where id = %s and fence = %s", (*said, *end.columns, turn, fence)
    )


def turn_left_waiting(turn: int, fence: int) -> Statement:
    return Statement(
        "update sessions_app_turn set state = 'waiting', worker = '', lease_expires_at = null, deadline_at = null"
        " where id = %s and fence = %s",
        (turn, fence),
    )


def turn_handed_over(turn: int, fence: int) -> Statement:
    """Back into the queue, at a commit point, by a worker that is going away."""
    return Statement(
        "update sessions_app_turn set state = 'queued', worker = '', lease_expires_at = null, queued_at = {now}"
        " where id = %s and fence = %s",
        (turn, fence),
    )


def turn_over(turn: int, fence: int, end: End) -> Statement:
    return Statement(f"update sessions_app_turn set {_OVER} where id = %s and fence = %s", (*end.columns, turn, fence))


def compacted(tenant: int, session: int, through: int, summary: str | None, at: datetime) -> Statement:
    """Models get no more of the messages up to there than ``summary``, as the text of a user's message; None: nothing."""
    return Statement(
        "insert into sessions_app_compaction (tenant_id, session_id, covers_through, summary, created_at)"
        " values (%s, %s, %s, %s, %s) on conflict do nothing",
        (tenant, session, through, summary, at),
    )


# --- a model's message ---------------------------------------------------------------------------


def parts_of(step: StepMessage, titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """A step's parts as ``Turn.parts`` keeps them; a call's part only refers to its row.

    A call that was given up while the model still spoke has no row; clients have seen it begin. ``titles``: of tools, by name.
    """
    parts: list[dict[str, Any]] = []
    for part, kind, value in step.parts:
        if kind == "call" and value in step.given_up:
            name = step.given_up[value]
            parts.append(given_up(part, value, name, titles.get(name, "")))
        elif kind == "call":
            parts.append({"id": part, "kind": kind, "call": value})
        else:
            parts.append({"id": part, "kind": kind, "text": value})
    return parts


def given_up(part: str, call: str, name: str, title: str, client: str | None = None) -> dict[str, Any]:
    return {"id": part, "kind": "given_up", "call": call, "name": name, "title": title, "client": client}


def said(turn: str, step: int, text: str, thinking: str) -> list[Happening]:
    """What a model's message says, whole."""
    happenings = []
    if thinking:
        happenings.append(Happening(Kind.THINKING_DONE, {"turn": turn, "step": step, "thinking": thinking}))
    if text:
        happenings.append(Happening(Kind.TEXT_DONE, {"turn": turn, "step": step, "text": text}))
    return happenings


def denied(turn: str, call_id: str, reason: str, content: Content, *, shown: bool, **more: Any) -> Happening:
    """``more``: the members of the event that it need not have."""
    payload = {"turn": turn, "call": call_id, "reason": reason, "content": content, "shown": shown, **more}
    return Happening(Kind.CALL_DENIED, payload)


def finished(
    turn: str, call_id: str, content: Content, *, failed: bool, by: Literal["server", "client"], shown: bool, **more: Any
) -> Happening:
    """``more``: the members of the event that it need not have."""
    return Happening(
        Kind.CALL_FINISHED,
        {"turn": turn, "call": call_id, "content": content, "failed": failed, "by": by, "shown": shown, **more},
    )


# --- the seed ------------------------------------------------------------------------------------


def add_seed(session: Session, seed: Sequence[dict[str, Any]], client_tools: AbstractSet[str], at: datetime) -> None:
    """The start of a history, with the calls in it; those of its last assistant message may be pending (A90)."""
    models.Message.objects.bulk_create(
        [
            models.Message(
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
    speakers = [index for index, line in enumerate(seed) if line["role"] != "tool"]
    last = speakers[-1] if speakers else -1
    rows: dict[str, ToolCall] = {}
    for index, line in enumerate(seed):
        if line["role"] != "assistant" or isinstance(line["content"], str):
            continue
        calls = [block for block in line["content"] if block["type"] == "tool_use"]
        for ordinal, block in enumerate(calls):
            open_end = index == last and block["toolCallId"] not in answered
            done = block["toolCallId"] in answered
            rows[block["toolCallId"]] = ToolCall(
                tenant_id=session.tenant_id,
                session=session,
                call_id=block["toolCallId"],
                name=block["name"],
                arguments=exact_json.dumps(block["input"]),
                runner=CallRunner.CLIENT if block["name"] in client_tools else CallRunner.SERVER,
                state=CallState.PENDING if open_end else CallState.DONE if done else CallState.DENIED,
                stored=not open_end,
                ordinal=ordinal,
                created_at=at,
                finished_at=None if open_end else at,
            )
    ToolCall.objects.bulk_create(rows.values(), batch_size=500)


# --- reading -------------------------------------------------------------------------------------


# Read in three parts, so that what is left out is not even looked at: what is behind the newest compaction, the system
# messages before it, and its summary. CROSS tells SQLite where to begin; so does that nothing is sorted here.
_FOR_MODEL = """
with c as (select session_id, max(covers_through) as through from sessions_app_compaction where session_id {among}
 group by session_id)
select m.session_id, m.role, m.content, m.tool_call_id, m.provider_data, m.turn_id, m.step, m.position, c.through, 0
from sessions_app_session s left join c on c.session_id = s.id cross join sessions_app_message m
where s.id {among} and m.session_id = s.id and m.position > coalesce(c.through, 0) and m.cut_at is null
union all
select m.session_id, m.role, m.content, m.tool_call_id, m.provider_data, m.turn_id, m.step, m.position, c.through, 0
from c cross join sessions_app_message m
where m.session_id = c.session_id and m.position <= c.through and m.role = 'system' and m.cut_at is null
union all
select k.session_id, 'user', k.summary, null, null, null, 0, k.covers_through, c.through, 1
from c cross join sessions_app_compaction k
where k.session_id = c.session_id and k.covers_through = c.through and k.summary is not null
"""
_POSITION, _THROUGH, _STANDS = 7, 8, 9


def for_models(sessions: Sequence[int]) -> dict[int, list[Message]]:
    """For each session what its newest compaction leaves: its messages, every system message, and its summary."""
    statement = asked_for_models(sessions)
    return told_for_models(sessions, prepared.rows(statement.sql, statement.params))


def asked_for_models(sessions: Sequence[int]) -> Statement:
    """The question alone, for whoever asks another one with it."""
    return Statement(_FOR_MODEL, [list(sessions), list(sessions)])


def told_for_models(sessions: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {session: [] for session in sessions}
    shortened = set()
    in_order = sorted(rows, key=lambda row: (row[_POSITION], row[_STANDS]))
    for session, role, content, call, provider_data, turn, step, position, through, stands in in_order:
        said = content if stands else exact_json.loads(content)
        found[session].append(Message(role, said, call, provider_data, turn, step, position, bool(stands)))
        if through is not None:
            shortened.add(session)
    for session in shortened:
        # A result may stand far behind its call; the two are left out together (A38).
        called = {block["toolCallId"] for message in found[session] for block in calls_of(message)}
        found[session] = [each for each in found[session] if each.role != "tool" or each.tool_call_id in called]
    return found


@dataclass(frozen=True, slots=True)
class Behind:
    """What of one session is behind its newest compaction: the positions of all that was asked for, and where it ends."""

    through: int
    positions: list[int]


def behind(rows: Sequence[tuple[Any, ...]]) -> Behind:
    """Of an answer about one session."""
    through = max((row[_THROUGH] or 0 for row in rows), default=0)
    return Behind(through, [row[_POSITION] for row in rows if row[_POSITION] > through])


def read(session: Session, kind: Literal["full", "compacted"]) -> list[Line]:
    """The whole history, or what the model would be given now (A37, A38)."""
    if kind == "full":
        rows = models.Message.objects.filter(session=session, cut_at=None).order_by("position")
        return [Line(*row) for row in rows.values_list("role", "content", "tool_call_id")]
    messages = for_models([session.pk])[session.pk]
    spec = registry.find(session.agent_name)
    if spec is not None and spec.context_tokens is not None:
        live = Turn.objects.filter(session=session, state__in=models.LIVE_STATES).values_list("pk", flat=True).first()
        values = agent_options.effective(spec, options.shown([session.pk]).get(session.pk, {}))
        decided = session_settings.settings_of(session)
        schemas = [tool.schema for tool in spec.tools if not tool.expose or tool.name in decided.enabled]
        schemas += decided.client_schemas()
        try:
            compact = compaction.compact(
                messages, agent_options.fill(spec.instructions, values), schemas, spec.context_tokens, live
            )
        except compaction.TooLong as error:
            messages = list(error.messages)
        else:
            messages = list(compact.messages)
    return [Line(line.role, exact_json.dumps(line.content), line.tool_call_id) for line in messages]


def of_run(turn: int, run: int) -> list[Line]:
    """What the server made in one run of a turn, in order (A61, A62)."""
    rows = models.Message.objects.filter(turn_id=turn, run=run, origin=Origin.SERVER).order_by("position")
    return [Line(*row) for row in rows.values_list("role", "content", "tool_call_id")]
