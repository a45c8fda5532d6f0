"""A session's conversation for the transcript page: messages, tool calls and turns in order.

Read-only. The page (sessions.py) checks permissions and writes the audit record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Case, Count, F, Q, QuerySet, Sum, TextField, Value, When
from django.db.models.functions import Length

from agents_app import exact_json, registry
from sessions_app.core.base import sealing
from sessions_app.core.records import file_edits, options, session_settings
from sessions_app.core.tenancy import model_use
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
    TurnAttempt,
    TurnState,
)
from sessions_app.presentation.content import TEXT_SHOWN, Block, Excerpt, blocks, cut, tool_names

MESSAGES_A_PAGE = 100
LOADED_AT_MOST = 200_000
"""Characters of one message that are loaded for display; a longer message is shown only on its own page."""


@dataclass(frozen=True, slots=True)
class CallView:
    """A tool call: its arguments, the decision and the result."""

    call_id: str
    name: str
    arguments: Excerpt
    state: str = ""
    text: str = ""
    runner: str = ""
    decided_by: str = ""
    reason: str = ""
    failed: bool = False
    asked_at: datetime | None = None
    decided_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    took: timedelta | None = None
    result: list[Block] | None = None
    result_note: str = ""
    preview: Block | None = None
    """The changes of files that a client is or was asked to permit, unless the call ran: then its result has them."""
    answer: int | None = None
    """The position of the message with the result, if it is on this page."""

    @property
    def times(self) -> list[tuple[datetime, str]]:
        """The times of the call's steps, in order."""
        steps = [
            (self.asked_at, "requested"),
            (self.decided_at, "decided"),
            (self.started_at, "started"),
            (self.finished_at, "finished"),
        ]
        if self.decided_at is not None and self.finished_at is not None and self.decided_at > self.finished_at:
            # A client's tool needs no permission: this decision was whether the model gets the result.
            steps.append((steps.pop(1)[0], "result released" if self.state != CallState.DENIED else "result withheld"))
        return [(at, what) for at, what in steps if at is not None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a message, and the tool call that it requests, if any."""

    block: Block
    call: CallView | None = None


@dataclass(slots=True)
class LineView:
    """A message. ``answers``: the name of the tool whose call this message answers."""

    message: Message
    pieces: list[Piece]
    too_long: int = 0
    compacted_through: bool = False
    summary: str = ""
    """The summary that the model gets instead of everything up to here; empty if there is none."""
    note: bool = False
    answers: str = ""


@dataclass(slots=True)
class TurnView:
    """A turn with its messages on this page; ``turn`` None: the seed messages."""

    turn: Turn | None
    lines: list[LineView] = field(default_factory=list)
    continued: bool = False
    goes_on: bool = False

    @property
    def live(self) -> bool:
        return self.turn is not None and self.turn.state in LIVE_STATES

    @property
    def took(self) -> timedelta | None:
        if self.turn is None or self.turn.ended_at is None:
            return None
        return self.turn.ended_at - self.turn.created_at

    @property
    def failure(self) -> str:
        return "" if self.turn is None else failure_text(self.turn)

    @property
    def failed_attempts(self) -> list[tuple[TurnAttempt, str]]:
        """The attempts before the turn was reopened, oldest first, each with why it failed."""
        if self.turn is None or self.turn.attempt == 1:
            return []
        return [(each, failure_text(each)) for each in self.turn.attempts.order_by("number")]

    @property
    def steps(self) -> int:
        """The turn's steps. The step that a cancel ended is in none of its columns, but its message is on the page."""
        return 0 if self.turn is None else max([self.turn.step, *(line.message.step for line in self.lines)])


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the whole session."""

    turns: int
    messages: int
    live: Turn | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cost: Decimal | None
    """In the unit of the price list; None: no price was known."""
    options: dict[str, str]
    server_tools: list[str] | None
    client_tools: list[str]


def facts(session: Session) -> Facts:
    sums = Turn.objects.filter(session=session).aggregate(
        turns=Count("pk"), given=Sum("input_tokens"), made=Sum("output_tokens"), cached=Sum("cache_read_tokens")
    )
    settings = session_settings.settings_of(session)
    return Facts(
        turns=sums["turns"],
        messages=Message.objects.filter(session=session).count(),
        live=Turn.objects.filter(session=session, state__in=LIVE_STATES).first(),
        input_tokens=sums["given"] or 0,
        output_tokens=sums["made"] or 0,
        cache_read_tokens=sums["cached"] or 0,
        cost=model_use.of_session(session.tenant_id, session.public_id, session.created_at).cost,
        options=_masked(session),
        server_tools=None if settings.tool_refs is None else tool_names(settings.tool_refs),
        client_tools=tool_names(settings.client_tools),
    )


def _masked(session: Session) -> dict[str, str]:
    """Options with secrets masked, including an option that became a secret after it was set."""
    shown = options.shown([session.pk]).get(session.pk, {})
    spec = registry.find(session.agent_name)
    secret = set() if spec is None else {option.name for option in spec.options if option.type == "secret"}
    return {name: sealing.MASK if name in secret else value for name, value in shown.items()}


def page(session: Session, number: int) -> Page[Message]:
    """The messages of a page (the first is 1), without the content of those that are too long."""
    return Paginator(_loaded(session), MESSAGES_A_PAGE).get_page(number)


def _loaded(session: Session) -> QuerySet[Message]:
    body = Case(When(size__lte=LOADED_AT_MOST, then=F("content")), default=Value(""), output_field=TextField())
    return (
        Message.objects.filter(session=session)
        .annotate(size=Length("content"))
        .annotate(body=body)
        .defer("content", "provider_data")
        .order_by("position")
    )


def single(session: Session, position: int) -> list[TurnView]:
    """One complete message."""
    rows = list(Message.objects.filter(session=session, position=position).defer("provider_data"))
    return _laid_out(session, rows, whole=True)


def turn(session: Session, public_id: str) -> list[TurnView]:
    """A turn's newest messages, as many as a page has."""
    rows = list(_loaded(session).filter(turn__public_id=public_id).order_by("-position")[:MESSAGES_A_PAGE])[::-1]
    return _laid_out(session, rows, whole=False)


def turns_of(session: Session, shown: Page[Message]) -> list[TurnView]:
    views = _laid_out(session, list(shown.object_list), whole=False)
    if views:
        edges = set(
            Message.objects.filter(
                session=session, position__in=[views[0].lines[0].message.position - 1, views[-1].lines[-1].message.position + 1]
            ).values_list("position", "turn_id")
        )
        first, last = views[0], views[-1]
        first.continued = (first.lines[0].message.position - 1, first.turn and first.turn.pk) in edges
        last.goes_on = (last.lines[-1].message.position + 1, last.turn and last.turn.pk) in edges
    return views


def _laid_out(session: Session, rows: Sequence[Message], *, whole: bool) -> list[TurnView]:
    most = None if whole else TEXT_SHOWN
    contents = {row.pk: _content(row, most) for row in rows}
    results = {row.tool_call_id: row for row in rows if row.role == "tool" and row.tool_call_id is not None}
    asked = [block.call_id for found in contents.values() for block in found if block.kind == "call"]
    calls = _calls(session, {*asked, *results}, whole=whole)
    turns = {turn.pk: turn for turn in Turn.objects.filter(pk__in={row.turn_id for row in rows if row.turn_id}).defer("parts")}
    covered = dict(Compaction.objects.filter(session=session).values_list("covers_through", "summary"))
    views: list[TurnView] = []
    placed: set[str] = set()
    for row in rows:
        if row.tool_call_id is not None and row.tool_call_id in placed:
            # The result is shown with its call, so its own message is left out.
            _mark(views[-1].lines[-1], row.position, covered)
            continue
        pieces = []
        for block in contents[row.pk]:
            if block.kind != "call":
                pieces.append(Piece(block))
                continue
            answer = results.get(block.call_id)
            result = None if answer is None else contents[answer.pk]
            placed.add(block.call_id)
            pieces.append(Piece(block, _call(block, calls.get(block.call_id), answer, result, most)))
        turn = turns.get(row.turn_id) if row.turn_id is not None else None
        if not views or (views[-1].turn and views[-1].turn.pk) != (turn and turn.pk):
            views.append(TurnView(turn))
        size = _size(row)
        answered = calls.get(row.tool_call_id or "")
        views[-1].lines.append(
            LineView(
                row,
                pieces,
                too_long=size if size > LOADED_AT_MOST else 0,
                note=row.origin == Origin.NOTE,
                answers="" if answered is None else answered.name,
            )
        )
        _mark(views[-1].lines[-1], row.position, covered)
    return views


def _content(row: Message, most: int | None) -> list[Block]:
    body = row.content if most is None else str(getattr(row, "body", ""))
    return blocks(body, most=most) if body else []


def _mark(line: LineView, position: int, covered: Mapping[int, str | None]) -> None:
    """Mark the end of a compaction, with its summary."""
    if position in covered:
        line.compacted_through, line.summary = True, covered[position] or ""


def _size(row: Message) -> int:
    return int(getattr(row, "size", 0))


def _calls(session: Session, call_ids: Iterable[str], *, whole: bool) -> dict[str, ToolCall]:
    limit = 2**31 - 1 if whole else LOADED_AT_MOST
    result = Case(
        When(size__lte=limit, then=F("result")),
        When(result__isnull=False, then=Value("")),
        default=Value(None),
        output_field=TextField(),
    )
    rows = (
        ToolCall.objects.filter(session=session, call_id__in=set(call_ids))
        .annotate(size=Length("result"))
        .annotate(shown_result=result, has_edits=Q(edits__isnull=False))
        .defer("result", "arguments", "edits")
    )
    return {row.call_id: row for row in rows}


def _call(block: Block, row: ToolCall | None, answer: Message | None, result: list[Block] | None, most: int | None) -> CallView:
    note, position = "", None if answer is None else answer.position
    if answer is not None and _size(answer) > LOADED_AT_MOST:
        note = f"{_size(answer)} characters, too long to show here; see message {answer.position}"
    if row is None:
        return CallView(
            block.call_id,
            block.name,
            block.excerpt,
            result=result,
            result_note=note,
            answer=position,
            text="not recorded",
        )
    if result is None:
        stored: str | None = getattr(row, "shown_result", None)
        if stored is not None:
            result = blocks(stored, most=most)
            note = note or ("the result is too long to show here" if stored == "" else "not in the history yet")
    if result is not None and getattr(row, "has_edits", False):
        result = [replace(block, kind="diff") if block.kind == "text" else block for block in result]
    began = row.started_at
    return CallView(
        call_id=row.call_id,
        name=row.name,
        arguments=block.excerpt,
        state="failed" if row.state == CallState.DONE and row.failed else row.state,
        text=_state_text(row),
        runner=row.runner,
        decided_by=row.decided_by,
        reason=row.reason,
        failed=row.failed,
        asked_at=row.created_at,
        decided_at=row.decided_at,
        started_at=began,
        finished_at=row.finished_at,
        took=None if began is None or row.finished_at is None else row.finished_at - began,
        result=result,
        result_note=note,
        preview=_preview(row),
        answer=position,
    )


def _preview(row: ToolCall) -> Block | None:
    if row.preview is None or row.state not in (CallState.PENDING, CallState.GRANTED, CallState.DENIED):
        return None
    return Block("diff", cut(file_edits.unified(row.session_id, exact_json.loads(row.preview))))


def _state_text(call: ToolCall) -> str:
    match call.state:
        case CallState.PENDING:
            return "waits for the client's result" if call.runner == CallRunner.CLIENT else "waits for permission"
        case CallState.GRANTED:
            return "granted, not started"
        case CallState.RUNNING:
            return "running"
        case CallState.REVIEW:
            return "result waits for release"
        case CallState.DENIED:
            return "denied"
        case _:
            return "failed" if call.failed else "done"


def failure_text(turn: Turn | TurnAttempt) -> str:
    """Why a turn failed, for operators; empty if nothing is known but its state."""
    if turn.failure is None:
        return _CAUSES.get(turn.error, "")
    found: dict[str, Any] = exact_json.loads(turn.failure)
    if found["kind"] == "internal":
        # Stored by an earlier release without places.
        places = f", at {', '.join(reversed(found['frames']))}" if found.get("frames") else ""
        return f"The server failed with {found['exception']}{places}. Nothing was retried."
    answered = [f"status {found['status']}"] if "status" in found else []
    answered += [str(found["code"])] if "code" in found else []
    where = f"{found['provider']} at {found['host']}" if "host" in found else str(found["provider"])
    what = f"{where}: {_KINDS.get(found['kind'], found['kind'])}"
    attempts = found["attempts"]
    sentences = [
        f"{what} ({', '.join(answered)})" if answered else what,
        "after part of the output" if found["after_output"] else "before any output",
        "1 attempt, nothing was retried" if attempts == 1 else f"{attempts} attempts",
    ]
    if "retry_after" in found:
        sentences.append(f"the provider asks to retry after {found['retry_after']} s")
    return "; ".join(sentences) + "."


_CAUSES = {
    "limit": "It ran longer than its agent allows; the agent's limits have the time.",
    "interrupted": "Its worker ended when part of an answer had already been shown, so the step could not be begun again.",
    "too_many_steps": "The agent took more steps than its limits allow.",
    "quota_tokens": "The tokens of the day of its tenant or key were used up; the tenant's and the key's page have the limits.",
    "turn_too_large": "Its messages became larger than a turn may be.",
}
"""Sentences for codes of errors that are not a provider's."""
_KINDS = {
    "unavailable": "not available",
    "refused_request": "refused the request",
    "context_too_long": "the conversation is too long for the model",
    "declined": "declined the content",
    "timeout": "did not answer in time",
    "broken_stream": "the response ended early or could not be parsed",
    "configuration": "refused the key, the model or the address",
}


def turn_text(turn: Turn) -> str:
    """A turn's state for display."""
    match turn.state:
        case TurnState.DONE:
            return {"end_turn": "done", "max_tokens": "stopped at the token limit", "refusal": "refused"}.get(
                turn.stop_reason, turn.stop_reason or "done"
            )
        case TurnState.ERROR:
            return f"error: {turn.error}" if turn.error else "error"
        case TurnState.WAITING:
            return "waiting for the client"
        case _:
            return str(turn.state)
