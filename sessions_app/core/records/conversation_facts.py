"""The facts about a session's conversation that its events do not say, read from its rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.db.models import Max, Q

from agents_app import exact_json
from sessions_app.core.base import times
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.records import conversation
from sessions_app.core.records.conversation import Facts, State
from sessions_app.models import LIVE_STATES, CallRunner, CallState, Form, Session, ToolCall, Turn, TurnState

# Calls of a seed have no step, and are in no turn's parts.
NEEDS_USER = Q(state=CallState.REVIEW) | Q(state=CallState.PENDING, runner=CallRunner.SERVER, step__gt=0)


def install() -> None:
    """Events that follow from a session's are appended in the same transaction from now on."""
    journal.follow(conversation.KINDS, _follow)


def _follow(session: int, happenings: Sequence[Happening], row: Any) -> list[Happening]:
    found = row if isinstance(row, Session) else Session.with_deleted.filter(pk=session).first()
    return [] if found is None else conversation.following(happenings, of(found))


def following_in_run(session: int, happenings: Sequence[Happening]) -> list[Happening]:
    """The events that follow from those of a run, which has written none of their rows yet."""
    row = Session.with_deleted.filter(pk=session).first()
    if row is None:
        return []
    answered, finished = [], {}
    for happening in happenings:
        payload = happening.payload
        if happening.kind is Kind.FORM_CLOSED:
            answered.append(payload["form"])
        elif happening.kind is Kind.CALL_FINISHED and payload.get("reviewed"):
            finished[payload["call"]] = {
                "status": "reviewing",
                "content": payload["content"],
                "failed": payload["failed"],
                "edits": payload.get("edits", []),
            }
    return conversation.following(happenings, of(row, answered_forms=answered, finished=finished, in_run=True))


def of(
    row: Session, *, answered_forms: Collection[str] = (), finished: dict[str, dict[str, Any]] | None = None, in_run: bool = False
) -> Facts:
    """``answered_forms``: count as closed, though their rows are still open. ``finished``: likewise, what calls are by now."""
    return Facts(
        read=bool(row.read),
        archived=bool(row.archived),
        chat_read=lambda: row.chat_read and _newest_form(row.pk) <= row.chat_read_forms,
        state=lambda: state_of(row, answered_forms, in_run=in_run),
        call=lambda call: {**call_document(ToolCall.objects.get(session=row, call_id=call)), **(finished or {}).get(call, {})},
        voided=lambda turn: list(
            Form.objects.filter(session=row, turn__public_id=turn, response="void")
            .order_by("pk")
            .values_list("form_id", flat=True)
        ),
    )


def _newest_form(session: int) -> int:
    return Form.objects.filter(session_id=session).aggregate(newest=Max("pk"))["newest"] or 0


def state_of(row: Session, answered_forms: Collection[str] = (), *, in_run: bool = False) -> State:
    """The state of a session's chat, which is locked unless its run asks.

    Then events of the run wait until the transaction ends, so that they come later.
    """
    last = Turn.objects.filter(session=row, cut_at=None).order_by("-pk").first()
    if last is None:
        return "idle"
    if last.state not in LIVE_STATES:
        return "failed" if last.state == TurnState.ERROR and last.pk > row.failures_seen_through else "idle"
    if last.state == TurnState.RUNNING and not in_run:
        journal.lock_counter(row.tenant_id)
    return "waiting" if is_waiting(last.pk, answered_forms) else "working"


def chat_modified(row: Session, turn: Turn | None) -> str:
    """When the session's newest turn began or ended, as a text. Truncating the history or reopening a turn does not change it.

    ``turn``: the one that began or was reopened last.
    """
    if turn is None:
        return times.text_of(row.created_at)
    if turn.chat_modified and turn.duration_ms is None:
        return turn.chat_modified
    if turn.began is None and turn.duration_ms is None:
        # Of an earlier release.
        return times.text_of(turn.ended_at or turn.created_at)
    began = turn.began or times.text_of(turn.created_at)
    return began if turn.duration_ms is None else times.after(began, turn.duration_ms)


def is_waiting(turn: int, answered_forms: Collection[str] = ()) -> bool:
    """Whether a live turn waits for a person."""
    forms = Form.objects.filter(turn_id=turn, response="").exclude(form_id__in=list(answered_forms))
    return forms.exists() or ToolCall.objects.filter(NEEDS_USER, turn_id=turn).exists()


def call_document(row: ToolCall) -> dict[str, Any]:
    """A call with the members of ``CallView``."""
    done = row.state in (CallState.DONE, CallState.REVIEW)
    advice = {} if row.suggestion is None else exact_json.loads(row.suggestion)
    return {
        "id": row.call_id,
        "name": row.name,
        "title": row.title,
        "client": row.client,
        "status": _status(row),
        "input": row.arguments,
        "why": row.why or "not-needed",
        "option": row.option,
        "how": row.how or ("denied" if row.state == CallState.DENIED else ""),
        "reason": advice.get("reason", row.reason or None),
        "suggestion": advice.get("suggestion"),
        "content": exact_json.loads(row.result) if done and row.result is not None else None,
        "failed": row.failed,
        "outcome": None if row.outcome is None else exact_json.loads(row.outcome),
        "shown": None if row.shown is None else exact_json.loads(row.shown),
        "edits": [] if row.edits is None else exact_json.loads(row.edits),
        "preview": [] if row.preview is None else exact_json.loads(row.preview),
    }


def _status(row: ToolCall) -> str:
    match row.state:
        case CallState.DONE:
            return "done"
        case CallState.DENIED:
            return "ended"
        case CallState.REVIEW:
            return "reviewing"
        case CallState.PENDING if row.runner == CallRunner.SERVER:
            return "asking"
    return "running"


def attention_of(call: ToolCall) -> conversation.Attention | None:
    """What an open call waits for."""
    if call.state == CallState.REVIEW or (call.state == CallState.PENDING and call.runner == CallRunner.SERVER and call.step):
        return "confirmation"
    return "execution" if call.client and call.state == CallState.PENDING else None


def attention_in(live: Turn) -> list[dict[str, Any]]:
    """What waits in a live turn, oldest first, as the events ``attention_opened`` say it."""
    found: list[tuple[Any, ...]] = []
    for call in ToolCall.objects.filter(turn=live, state__in=[CallState.PENDING, CallState.REVIEW]):
        if (kind := attention_of(call)) is not None:
            entry = {"kind": kind, "turn": live.public_id, "call": {**call_document(call), "shown": _shown(call)}}
            since = call.finished_at if call.state == CallState.REVIEW else call.created_at
            found.append((since, 0, call.step, call.ordinal, entry))
    for form in Form.objects.filter(turn=live, response=""):
        entry = {"kind": "form", "turn": live.public_id, "form": exact_json.loads(form.document)}
        found.append((form.created_at, 1, 0, form.pk, entry))
    return [each[-1] for each in sorted(found, key=lambda each: each[:-1])]


def _shown(call: ToolCall) -> Any:
    """Progress that a client shows later is not part of what waits."""
    return exact_json.loads(call.shown) if call.state == CallState.REVIEW and call.shown is not None else None
