"""What a model was sent at one step of a turn, put together from what is stored.

The messages are those before the step's own, with the compaction that was in force when the step was stored, and the
definition that the turn used. Not stored, and so those of now: the session's options, its enabled tools and its clients'
tools. A provider's own format is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.db.models import Max, Q

from agents_app import compaction, exact_json
from agents_app.runtime import messages as runtime
from agents_app.runtime.messages import Role, calls_of
from agents_app.spec import AgentSpec
from sessions_app.core.records import session_settings
from sessions_app.core.tenancy import definitions
from sessions_app.models import Compaction, Message, Session, Turn

MOST_MESSAGES = 2000
"""A longer input is not put together: it would take seconds and a page that nobody reads."""


@dataclass(frozen=True, slots=True)
class InputLine:
    """A message of the input. ``position``: that of the stored message; of a summary, of the last message that it covers."""

    position: int
    role: str
    content: str
    tool_call_id: str | None
    is_summary: bool
    is_shortened: bool


@dataclass(frozen=True, slots=True)
class ModelInput:
    """``left_out``: stored messages that were not sent. ``exact`` False: the definition cannot be read any more."""

    turn: Turn
    step: int
    steps: int
    model: str
    instructions: str
    tools: list[str]
    lines: list[InputLine]
    left_out: list[tuple[int, str]]
    covered_through: int
    exact: bool


class TooLongToShow(Exception):
    """The input has more than MOST_MESSAGES messages."""


def at_step(session: Session, turn: Turn, step: int) -> ModelInput:
    """``step`` counts from 1; the step after the last stored one is what the model gets next, or is answering now."""
    own = Message.objects.filter(turn=turn, role="assistant")
    steps = own.aggregate(last=Max("step"))["last"] or 0
    answer = own.filter(step=step).order_by("position").values_list("position", "created_at").first()
    before, at = (None, None) if answer is None else answer
    if answer is None:
        # The turn's own messages and what came before; later turns are not part of it.
        last = Message.objects.filter(turn=turn).aggregate(last=Max("position"))["last"]
        before = None if last is None else last + 1
    return _put_together(session, turn, step, steps, before, at)


def _put_together(session: Session, turn: Turn, step: int, steps: int, before: int | None, at: datetime | None) -> ModelInput:
    rows = Message.objects.filter(session=session)
    if before is not None:
        rows = rows.filter(position__lt=before)
    # A message that was truncated away later was part of the input then.
    rows = rows.filter(cut_at=None) if at is None else rows.filter(Q(cut_at=None) | Q(cut_at__gt=at))
    answered = Q(superseded_at=None) if at is None else Q(superseded_at=None) | Q(superseded_at__gt=at)
    compactions = Compaction.objects.filter(session=session)
    if before is not None:
        compactions = compactions.filter(covers_through__lt=before)
    if at is not None:
        compactions = compactions.filter(created_at__lte=at)
    newest = compactions.order_by("-covers_through").first()
    through = 0 if newest is None else newest.covers_through
    sent = list(rows.filter(answered, Q(position__gt=through) | Q(role="system")).order_by("position")[: MOST_MESSAGES + 1])
    if len(sent) > MOST_MESSAGES:
        raise TooLongToShow
    messages = [_message(row) for row in sent]
    if newest is not None and newest.summary is not None:
        messages.append(runtime.Message("user", newest.summary, None, None, None, 0, through, summary=True))
        messages.sort(key=lambda each: (each.position, each.summary))
    if through:
        called = {block["toolCallId"] for message in messages for block in calls_of(message)}
        messages = [each for each in messages if each.role != "tool" or each.tool_call_id in called]
    spec = _definition(turn)
    shown = _as_sent(session, turn, spec, messages)
    whole = {each.position: each.content for each in messages if not each.summary}
    kept = {each.position for each in shown if not each.summary}
    left = rows.exclude(position__in=kept).order_by("position").values_list("position", "role")[:MOST_MESSAGES]
    return ModelInput(
        turn=turn,
        step=step,
        steps=steps,
        model="" if spec is None else spec.model,
        instructions="" if spec is None else spec.instructions,
        tools=[] if spec is None else [tool.name for tool in spec.tools],
        lines=[
            InputLine(
                each.position,
                each.role,
                exact_json.dumps(each.content),
                each.tool_call_id,
                bool(each.summary),
                not each.summary and whole.get(each.position) != each.content,
            )
            for each in shown
        ],
        left_out=[(position, role) for position, role in left],
        covered_through=through,
        exact=spec is not None,
    )


def _message(row: Message) -> runtime.Message:
    content = exact_json.loads(row.content)
    return runtime.Message(cast(Role, row.role), content, row.tool_call_id, None, row.turn_id, row.step, row.position)


def _definition(turn: Turn) -> AgentSpec | None:
    try:
        return definitions.by_digest(turn.definition_id, turn.definition.digest)
    except Exception:  # a definition of another release, or sealed with a key that is gone
        return None


def _as_sent(session: Session, turn: Turn, spec: AgentSpec | None, messages: list[runtime.Message]) -> list[runtime.Message]:
    """With gaps closed and long results shortened, as the run does before each call."""
    shown = list(compaction.for_model(messages))
    if spec is None or spec.context_tokens is None:
        return shown
    decided = session_settings.settings_of(session)
    schemas = [tool.schema for tool in spec.tools if not tool.expose or tool.name in decided.enabled]
    schemas += decided.client_schemas()
    try:
        return list(compaction.compact(shown, spec.instructions, schemas, spec.context_tokens, turn.pk).messages)
    except compaction.TooLong as error:
        return list(error.messages)
