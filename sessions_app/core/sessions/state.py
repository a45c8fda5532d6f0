"""The state of a session at a stream position: the snapshot that a client needs before it follows the events.

Rows and the counter are read in one database snapshot. The open step is in no row yet; it is put together from the stream
events since the last commit point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db.models import QuerySet

from agents_app import exact_json
from agents_app.runtime.messages import Content, text_of
from agents_app.spec import AgentSpec
from sessions_app.core.base import byte_budget, times
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import SessionNotFound, TurnUnknown
from sessions_app.core.base.events import Kind
from sessions_app.core.log import journal
from sessions_app.core.records import clients, conversation_facts, options, seed_turns, session_settings
from sessions_app.core.records.seed_turns import SeedTurn
from sessions_app.core.sessions import entries
from sessions_app.core.sessions.entries import SessionEntry
from sessions_app.core.tenancy import access, agent_listings, api_audit, usage_entries
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.turns import stopping
from sessions_app.models import (
    LIVE_STATES,
    Form,
    Message,
    PendingKind,
    PendingMessage,
    Session,
    ToolCall,
    Turn,
    TurnAttempt,
    TurnState,
)

CallStatus = Literal["streaming", "asking", "running", "reviewing", "done", "ended"]
Ending = Literal["complete", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class CallView:
    """A tool call as clients see it.

    ``status``: ``asking``: it needs a permission; ``reviewing``: its result does; ``ended``: it will not run, for the
    reason in ``how`` (``denied``, ``skipped``, ``result-denied``). ``input``: the JSON text of its arguments, incomplete
    while the call is streaming. ``why`` it may run: ``not-needed``, ``setting``, ``user-action``. ``content``: the result
    for the model; ``outcome``: the result in the client's own form; ``shown``: what a client shows while its tool runs;
    ``edits``: the files that the server's tool changed; ``preview``: those that it would change, if it asks.
    """

    id: str
    name: str
    title: str
    client: str | None
    status: CallStatus
    input: str = ""
    has_input: bool = True
    why: str = ""
    option: str = ""
    how: str = ""
    reason: Any = None
    suggestion: dict[str, Any] | None = None
    content: Content | None = None
    failed: bool = False
    outcome: dict[str, Any] | None = None
    shown: list[dict[str, Any]] | None = None
    edits: list[dict[str, Any]] = field(default_factory=list)
    preview: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """``text`` of kinds ``text`` and ``thinking``; ``call`` of kind ``call``."""

    id: str
    kind: Literal["text", "thinking", "call"]
    text: str = ""
    call: CallView | None = None


@dataclass(frozen=True, slots=True)
class FormView:
    """A form. ``document``: its id, message and questions; ``answers`` by question, drafts included.

    ``place``: the number of its turn's parts before it. ``response`` "": it is open, or was when its turn ended.
    """

    document: dict[str, Any]
    answers: dict[str, Any]
    place: int = 0
    response: str = ""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """A failed attempt at a turn that was reopened. ``place``: the number of the turn's parts before its end."""

    place: int
    error: str


@dataclass(frozen=True, slots=True)
class TurnView:
    """``ending`` None: the turn is live. ``content``: the user's message as the model got it; None: there was none.

    ``usage``: input, output and cached tokens; None before the first model message. ``error``: a short public code.
    ``model``: the one that clients are shown with the message. ``began``: a text (core.base.times). ``resumable``: it failed, and
    can be reopened while it is the latest turn; each of ``attempts`` was, oldest first.
    """

    id: str
    text: str
    attachments: list[dict[str, Any]] | None
    content: Content | None
    parts: list[Part]
    ending: Ending | None
    usage: tuple[int, int, int] | None = None
    error: str = ""
    model: str | None = None
    began: str = ""
    duration_ms: int = 0
    forms: list[FormView] = field(default_factory=list)
    resumable: bool = False
    attempts: list[AttemptView] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SessionState:
    """``seq``: the number of the last event that is included. ``turns``: ended ones, oldest first; ``older``: there are more.

    ``forms``: the open ones. ``attention``: what waits for a person, as the events ``attention_opened`` say it, oldest first.
    ``agent``: as the tenant sees it; None: the tenant does not have it any more.
    """

    seq: int
    summary: SessionEntry
    options: dict[str, str]
    approval: str
    server_tools: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    customizations: list[dict[str, Any]]
    turns: list[TurnView]
    older: bool
    live: TurnView | None
    steering: dict[str, Any] | None
    queued: list[dict[str, Any]] = field(default_factory=list)
    forms: list[FormView] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    draft: dict[str, Any] | None = None
    agent: AgentSpec | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Ended turns, oldest first. ``older``: there are more before them."""

    turns: list[TurnView]
    older: bool


def read(caller: Caller, session: Session, turns: int = 200) -> SessionState:
    """The session with its newest ended turns. SessionNotFound if it was deleted meanwhile.

    ``turns`` 0: without all turns, also the live one.
    """
    api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
    with journal.snapshot():
        seq, _ = journal.counter_and_sessions(caller.tenant)
        session = access.session_of_row(caller, session.pk)
        state = _state(caller, session, seq, turns)
    journal.barrier()
    return state


def page(caller: Caller, session: Session, before: str | None, limit: int, *, inclusive: bool = False) -> Page:
    """Ended turns before the turn ``before``, or the newest ones. TurnUnknown if there is no such turn.

    ``inclusive``: with the turn ``before``.
    """
    api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
    with journal.snapshot():
        session = access.session_of_row(caller, session.pk)
        found = _ended(session, before, limit, inclusive=inclusive)
    journal.barrier()
    return found


def _state(caller: Caller, session: Session, seq: int, turns: int) -> SessionState:
    summary = entries.of(caller.tenant, [session.pk]).get(session.pk)
    if summary is None:
        raise SessionNotFound
    spec = agent_listings.of(caller.tenant).specs.get(session.agent_name)
    enabled = session_settings.settings_of(session).enabled
    ended = _ended(session, None, turns) if turns else Page([], older=False)
    live = Turn.objects.filter(session=session, state__in=LIVE_STATES).first()
    pending = list(PendingMessage.objects.filter(session=session).defer("files").order_by("position", "pk"))
    waiting = [{"id": row.message_id, "message": exact_json.loads(row.message), "kind": row.kind} for row in pending]
    active = [clients.entry_of(row).document() for row in clients.active_ones(session.pk)]
    customizations = Session.objects.values_list("customizations", flat=True).get(pk=session.pk)
    views = None if live is None or not turns else _views(session, [live])[0]
    return SessionState(
        seq=seq,
        summary=summary,
        options=options.shown([session.pk]).get(session.pk, {}),
        approval=session.approval,
        server_tools=[] if spec is None else session_settings.shown_tools(spec, enabled),
        clients=active,
        customizations=[] if customizations is None else exact_json.loads(customizations),
        turns=ended.turns,
        older=ended.older,
        live=views,
        steering=next((each for each in waiting if each["kind"] == PendingKind.STEERING), None),
        queued=[each for each in waiting if each["kind"] == PendingKind.QUEUED],
        forms=[] if views is None else [form for form in views.forms if not form.response],
        attention=[] if live is None else conversation_facts.attention_in(live),
        draft=None if session.draft is None else exact_json.loads(session.draft),
        agent=spec,
    )


def _forms(session: Session, rows: Sequence[Turn]) -> dict[int, list[FormView]]:
    """By turn, oldest first."""
    found: dict[int, list[FormView]] = {}
    for row in Form.objects.filter(session=session, turn_id__in=[turn.pk for turn in rows]).order_by("pk"):
        response = "" if row.response == "void" else row.response
        view = FormView(exact_json.loads(row.document), exact_json.loads(row.answers), row.place, response)
        found.setdefault(row.turn_id, []).append(view)
    return found


# --- turns ---------------------------------------------------------------------------------------


def _ended(session: Session, before: str | None, limit: int, *, inclusive: bool = False) -> Page:
    rows = Turn.objects.filter(session=session, cut_at=None).exclude(state__in=LIVE_STATES).order_by("-pk")
    seeds: list[SeedTurn] | None = None
    if before is not None:
        if UNSTORABLE.search(before):
            raise TurnUnknown
        end = rows.filter(public_id=before).values_list("pk", flat=True).first()
        if end is not None:
            rows = rows.filter(pk__lte=end) if inclusive else rows.filter(pk__lt=end)
        else:
            seeds = seed_turns.of(session)
            index = next((index for index, each in enumerate(seeds) if each.id == before), None)
            if index is None:
                raise TurnUnknown
            rows, seeds = rows.none(), seeds[: index + inclusive]
    _reserve(session, rows, limit, is_newest=before is None)
    found = list(rows[: limit + 1])
    older = len(found) > limit
    views = _views(session, found[:limit][::-1])
    if not older:
        seeds = seed_turns.of(session) if seeds is None else seeds
        room = limit - len(views)
        older = len(seeds) > room
        views = _seed_views(session, seeds[len(seeds) - room :] if older else seeds) + views
    return Page(views, older)


def _reserve(session: Session, rows: QuerySet[Turn], limit: int, *, is_newest: bool) -> None:
    """Reserve memory for these turns, newest first: the bytes of their messages, and of those behind the newest turn."""
    if usage_entries.bytes_of_session(session) <= byte_budget.LEAST_RESERVED:
        return
    shown = list(rows.values_list("pk", flat=True)[:limit])
    if not shown and not is_newest:
        # Only turns of the seed, which one request has sent.
        return
    lines = Message.objects.filter(session=session).values_list("position", flat=True)
    first = last = 0
    if len(shown) == limit:
        first = lines.filter(turn_id=shown[-1]).order_by("position").first() or 0
    size = usage_entries.bytes_of_history(session, max(0, first - 1))
    if not is_newest:
        last = lines.filter(turn_id=shown[0]).order_by("-position").first() or 0
        size -= usage_entries.bytes_of_history(session, last)
    byte_budget.reserve(size)


def _views(session: Session, rows: Sequence[Turn]) -> list[TurnView]:
    parts = {row.pk: exact_json.loads(row.parts) for row in rows}
    calls = _calls(session, [part["call"] for each in parts.values() for part in each if part["kind"] == "call"])
    messages = _first_messages(rows)
    forms, attempts = _forms(session, rows), _attempts(rows)
    return [
        _view(row, parts[row.pk], calls, messages.get(row.pk), forms.get(row.pk, []), attempts.get(row.pk, [])) for row in rows
    ]


def _attempts(rows: Sequence[Turn]) -> dict[int, list[AttemptView]]:
    """By turn: its failed attempts before the present one, oldest first."""
    found: dict[int, list[AttemptView]] = {}
    if reopened := [row.pk for row in rows if row.attempt > 1]:
        for each in TurnAttempt.objects.filter(turn_id__in=reopened).order_by("number"):
            found.setdefault(each.turn_id, []).append(AttemptView(each.place, each.error))
    return found


def _calls(session: Session, ids: Sequence[str]) -> dict[str, ToolCall]:
    if not ids:
        return {}
    return {row.call_id: row for row in ToolCall.objects.filter(session=session, call_id__in=ids)}


def _first_messages(rows: Sequence[Turn]) -> dict[int, Content]:
    """By turn: the user message that started it."""
    lines = Message.objects.filter(turn_id__in=[row.pk for row in rows], role="user", run=1, step=0)
    first: dict[int, Content] = {}
    for turn, content in lines.order_by("position").values_list("turn_id", "content"):
        first.setdefault(turn or 0, exact_json.loads(content))
    return first


_ENDINGS: Mapping[str, Ending] = {
    TurnState.DONE: "complete",
    TurnState.CANCELLED: "cancelled",
    TurnState.ERROR: "error",
}


def _view(
    row: Turn,
    parts: Sequence[Mapping[str, Any]],
    calls: Mapping[str, ToolCall],
    content: Content | None,
    forms: list[FormView],
    attempts: list[AttemptView],
) -> TurnView:
    is_live = row.state in LIVE_STATES
    over = attempts[-1].place if attempts else 0
    views = [_part(part, calls, is_live=is_live and index >= over) for index, part in enumerate(parts)]
    shown = [view for view in views if view is not None]
    if is_live:
        shown += _open_parts(row)
    message: dict[str, Any] = (
        {"text": "" if content is None else text_of(content)} if row.said is None else exact_json.loads(row.said)
    )
    return TurnView(
        id=row.public_id,
        text=message["text"],
        attachments=message.get("attachments"),
        content=content,
        parts=shown,
        ending=_ENDINGS.get(row.state),
        usage=(row.input_tokens, row.output_tokens, row.cache_read_tokens) if row.step else None,
        error=row.error,
        # The previous release has it in the message.
        model=row.model or (message.get("model") or {}).get("id"),
        began=began_of(row),
        duration_ms=duration_of(row),
        forms=forms,
        resumable=row.resumable,
        attempts=attempts,
    )


def began_of(row: Turn) -> str:
    """Turns of earlier releases have only the server's times."""
    return row.began or times.text_of(row.created_at)


def duration_of(row: Turn) -> int:
    if row.duration_ms is not None or row.ended_at is None or row.began is not None:
        return row.duration_ms or 0
    return times.between(row.created_at, row.ended_at)


def _part(part: Mapping[str, Any], calls: Mapping[str, ToolCall], *, is_live: bool) -> Part | None:
    if part["kind"] == "given_up":
        status: CallStatus = "streaming" if is_live else "ended"
        view = CallView(
            part["call"],
            part["name"],
            part["title"],
            part.get("client"),
            status,
            input=part.get("partial", ""),
            has_input=False,
            how="" if is_live else "skipped",
        )
        return Part(part["id"], "call", call=view)
    if part["kind"] == "call":
        row = calls.get(part["call"])
        return None if row is None else Part(part["id"], "call", call=_call(row))
    return Part(part["id"], part["kind"], part["text"])


def _call(row: ToolCall) -> CallView:
    return CallView(**conversation_facts.call_document(row))


def _open_parts(turn: Turn) -> list[Part]:
    """The parts of the open step, from its stream events."""
    texts: dict[str, list[str]] = {}
    order: list[tuple[str, str, Mapping[str, Any]]] = []
    for event in stopping.open_step(turn):
        payload = exact_json.loads(event.data)
        match event.kind:
            case Kind.TEXT_OPENED | Kind.THINKING_OPENED:
                kind = "text" if event.kind == Kind.TEXT_OPENED else "thinking"
                order.append((payload["part"], kind, payload))
                texts[payload["part"]] = []
            case Kind.CALL_OPENED:
                order.append((payload["part"], "call", payload))
                texts[payload["call"]] = []
            case Kind.TEXT_DELTA | Kind.THINKING_DELTA:
                texts.setdefault(payload["part"], []).append(payload["delta"])
            case Kind.CALL_ARGUMENTS:
                texts.setdefault(payload["call"], []).append(payload["delta"])
    parts = []
    for part, kind, payload in order:
        if kind == "call":
            written = "".join(texts[payload["call"]])
            title, client = payload.get("title", ""), payload.get("client")
            view = CallView(payload["call"], payload["name"], title, client, "streaming", input=written, has_input=bool(written))
            parts.append(Part(part, "call", call=view))
        else:
            parts.append(Part(part, "text" if kind == "text" else "thinking", "".join(texts[part])))
    return parts


# --- the seed's turns ----------------------------------------------------------------------------


def _seed_views(session: Session, turns: Sequence[SeedTurn]) -> list[TurnView]:
    lines = seed_turns.lines_of(session, turns)
    asked = [
        block["toolCallId"]
        for each in lines
        for _, role, content in each
        if role == "assistant" and not isinstance(content, str)
        for block in content
        if block["type"] == "tool_use"
    ]
    calls = _calls(session, asked)
    results = dict(
        Message.objects.filter(session=session, turn=None, role="tool", tool_call_id__in=asked).values_list(
            "tool_call_id", "content"
        )
        if asked
        else []
    )
    began = times.text_of(session.created_at)
    return [_seed_view(turn, each, calls, results, began) for turn, each in zip(turns, lines, strict=True)]


def _seed_view(
    turn: SeedTurn,
    lines: Sequence[tuple[int, str, Any]],
    calls: Mapping[str, ToolCall],
    results: Mapping[str | None, str],
    began: str,
) -> TurnView:
    content = lines[0][2] if lines and lines[0][1] == "user" else None
    parts: list[Part] = []
    for position, role, line in lines:
        if role != "assistant":
            continue
        blocks = [{"type": "text", "text": line}] if isinstance(line, str) else line
        for index, block in enumerate(blocks):
            part = f"{position}.{index}"
            if block["type"] == "text":
                parts.append(Part(part, "text", block["text"]))
            elif block["type"] == "thinking":
                parts.append(Part(part, "thinking", block["thinking"]))
            elif block["type"] == "tool_use":
                parts.append(Part(part, "call", call=_seed_call(block, calls.get(block["toolCallId"]), results)))
    text = "" if content is None else text_of(content)
    return TurnView(turn.id, text, None, content, parts, "complete", began=began)


def _seed_call(block: Mapping[str, Any], row: ToolCall | None, results: Mapping[str | None, str]) -> CallView:
    """A call that was open at the seed's end has no result here: its answer belongs to a later turn."""
    call, name, written = block["toolCallId"], block["name"], exact_json.dumps(block["input"])
    title = "" if row is None else row.title
    result = results.get(call)
    if result is None:
        return CallView(call, name, title, None, "ended", input=written, how="skipped")
    return CallView(call, name, title, None, "done", input=written, why="not-needed", content=exact_json.loads(result))
