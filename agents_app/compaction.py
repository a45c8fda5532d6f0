"""Making a conversation fit a model: what is left out when it is too long, and which gaps are closed. Pure.

Nothing here changes a history: the messages that come out are for the model (and for the compacted
history, which shows what the model gets).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents_app import exact_json
from agents_app.errors import AgentError
from agents_app.runtime.messages import Content, Message, ToolSchema, calls_of

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1_000
STEPS_LEFT_WHOLE = 2
NO_RESULT = "Tool call denied: no result"


class TooLong(AgentError):
    """Even what must be kept is over the limit. ``messages`` is that rest, already shortened."""

    def __init__(self, tokens: int, limit: int, messages: Sequence[Message]) -> None:
        self.tokens, self.limit, self.messages = tokens, limit, messages
        super().__init__(f"{tokens} tokens cannot be brought under {limit}")


@dataclass(frozen=True, slots=True)
class Compacted:
    """``dropped_through``: up to this position nothing but system messages is left; None: all are there."""

    messages: list[Message]
    dropped_through: int | None


def compact(
    messages: Sequence[Message],
    instructions: str,
    tool_schemas: Sequence[ToolSchema],
    limit_tokens: int | None,
    running_turn: int | None,
) -> Compacted:
    """``messages`` brought under ``limit_tokens``, instructions and tools counted; ``TooLong`` if that cannot be.

    First old tool results lose their content, then whole turns go, oldest first. System messages, the
    newest user message and the calls and results of ``running_turn`` stay.
    """
    everything = list(messages)
    if limit_tokens is None:
        return Compacted(everything, None)
    fixed = len(instructions) + sum(_schema_size(schema) for schema in tool_schemas)
    if _tokens(fixed, everything) <= limit_tokens:
        return Compacted(everything, None)

    shortened = _without_old_results(everything)
    groups = _turns(shortened)
    kept = set(range(len(groups)))
    protected = _protected(shortened, groups, running_turn)
    sizes = [_size(shortened[index] for index in group) for group in groups]
    characters = fixed + sum(size[0] for size in sizes)
    images = sum(size[1] for size in sizes)
    system = _size(message for message in shortened if message.role == "system")
    characters, images = characters + system[0], images + system[1]

    for number in range(len(groups)):
        if _count(characters, images) <= limit_tokens:
            break
        if number in protected:
            continue
        kept.discard(number)
        characters, images = characters - sizes[number][0], images - sizes[number][1]

    gone = {index for number, group in enumerate(groups) if number not in kept for index in group}
    rest = [message for index, message in enumerate(shortened) if index not in gone]
    if _count(characters, images) > limit_tokens:
        raise TooLong(_count(characters, images), limit_tokens, rest)
    return Compacted(rest, _dropped_through(shortened, gone))


def _dropped_through(messages: Sequence[Message], gone: Collection[int]) -> int | None:
    """How far everything is gone; a result that stood far behind its dropped call may lie beyond."""
    kept = (message.position for index, message in enumerate(messages) if message.role != "system" and index not in gone)
    first_kept = min(kept, default=math.inf)
    return max((position for index in gone if (position := messages[index].position) < first_kept), default=None)


def for_model(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with every call followed by its result, as model APIs demand.

    A result that came later is moved up to its call; a call without one gets ``NO_RESULT``; a result
    without a call is left out. Pure reordering otherwise.
    """
    answers = _answers(messages)
    results: dict[int, list[int]] = {}
    for (caller, _), answer in answers.items():
        results.setdefault(caller, []).append(answer)
    out: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            continue
        out.append(message)
        calls = calls_of(message)
        if not calls:
            continue
        out.extend(messages[answer] for answer in sorted(results.get(index, ())))
        out.extend(
            Message(
                role="tool",
                content=NO_RESULT,
                tool_call_id=call["toolCallId"],
                turn=message.turn,
                step=message.step,
                position=message.position,
            )
            for call in calls
            if (index, call["toolCallId"]) not in answers
        )
    return out


def tokens(messages: Sequence[Message], instructions: str = "", tool_schemas: Sequence[ToolSchema] = ()) -> int:
    """How long an input is by this server's way of counting."""
    return _tokens(len(instructions) + sum(_schema_size(schema) for schema in tool_schemas), messages)


def _answers(messages: Sequence[Message]) -> dict[tuple[int, str], int]:
    """For each answered call (index of its message, call id): the index of its tool message."""
    callers: dict[str, int] = {}
    found: dict[tuple[int, str], int] = {}
    for index, message in enumerate(messages):
        for call in calls_of(message):
            callers[call["toolCallId"]] = index
        if message.role == "tool" and message.tool_call_id in callers:
            found.setdefault((callers[message.tool_call_id], message.tool_call_id), index)
    return found


def _without_old_results(messages: list[Message]) -> list[Message]:
    """Tool results of all steps but the last two replaced by a note of their length."""
    steps = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if len(steps) <= STEPS_LEFT_WHOLE:
        return messages
    first_whole = steps[-STEPS_LEFT_WHOLE]
    caller_of = {answer: caller for (caller, _), answer in _answers(messages).items()}
    return [
        _left_out(message) if message.role == "tool" and caller_of.get(index, index) < first_whole else message
        for index, message in enumerate(messages)
    ]


def _left_out(message: Message) -> Message:
    characters, images = _content_size(message.content)
    note = f"[{characters} characters left out]"
    if not images and characters <= len(note):
        return message
    return dataclasses.replace(message, content=note)


def _turns(messages: Sequence[Message]) -> list[list[int]]:
    """The indexes of all messages but system ones, by turn, oldest first.

    A seed has no turns of its own: there each user message begins one. A result belongs to where its
    call is, whichever turn it came in, so that the pair has one fate.
    """
    groups: list[list[int]] = []
    group_of: dict[int, int] = {}
    caller_of = {answer: caller for (caller, _), answer in _answers(messages).items()}
    current: int | None = None
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "tool" and index in caller_of:
            number = group_of[caller_of[index]]
        else:
            if not groups or message.turn != current or (message.turn is None and message.role == "user"):
                groups.append([])
                current = message.turn
            number = len(groups) - 1
        groups[number].append(index)
        group_of[index] = number
    return groups


def _protected(messages: Sequence[Message], groups: Sequence[Sequence[int]], running_turn: int | None) -> set[int]:
    """The groups that stay: that of the newest user message and those the running turn works on."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    # Results that stand before the running turn's own user message only closed what an earlier turn left open.
    begins = min((index for index in users if messages[index].turn == running_turn), default=-1)
    keep = {users[-1]} if users else set()
    if running_turn is not None:
        keep |= {index for index, message in enumerate(messages) if message.turn == running_turn and index >= begins}
    return {number for number, group in enumerate(groups) if keep.intersection(group)}


def _tokens(fixed: int, messages: Sequence[Message]) -> int:
    characters, images = _size(messages)
    return _count(fixed + characters, images)


def _count(characters: int, images: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN) + images * TOKENS_PER_IMAGE


def _size(messages: Iterable[Message]) -> tuple[int, int]:
    characters = images = 0
    for message in messages:
        more = _content_size(message.content)
        characters += more[0] + len(message.provider_data or "")
        images += more[1]
    return characters, images


def _content_size(content: Content) -> tuple[int, int]:
    """(characters, images) of what a model is sent; thinking is never sent back as text."""
    if isinstance(content, str):
        return len(content), 0
    characters = images = 0
    for block in content:
        if block["type"] == "text":
            characters += len(block["text"])
        elif block["type"] == "tool_use":
            characters += len(block["name"]) + len(exact_json.dumps(block["input"]))
        elif block["type"] == "image":
            images += 1
    return characters, images


def _schema_size(schema: ToolSchema) -> int:
    parameters: Mapping[str, object] = schema.parameters
    return len(schema.name) + len(schema.description) + len(exact_json.dumps(parameters))
