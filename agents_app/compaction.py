"""Making a conversation fit a model: what is left out when it is too long, or summarised, and which gaps are closed. Pure.

Nothing here changes a history: the messages that come out are for the model (and for the compacted
history, which shows what the model gets). A summary, if there is one, is a message among the others; the
text for it is made elsewhere (runtime/summarising.py) of what ``older`` gives.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agents_app import exact_json
from agents_app.errors import AgentError
from agents_app.runtime.messages import Content, Message, ToolSchema, calls_of

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1_000
STEPS_LEFT_WHOLE = 2
NO_RESULT = "Tool call denied: no result"
SUMMARY_BEGINS = "Summary of the conversation so far:"

DUE_SHARE = 0.7
"""A conversation that takes more of its room than this is to be summarised before it takes all."""
KEPT_SHARE = 0.4
"""How much of the room the newest turns keep, word for word, beside a new summary."""
SUMMARY_SHARE = 0.2
LONGEST_SUMMARY, SHORTEST_SUMMARY = 16_000, 120
"""Characters, with the line it begins with. What is shorter says nothing that is worth a model call."""
_TIGHT_SUMMARY = 400
"""Where a share of the room is less than this, a summary may take this much if it fits at all."""


class TooLong(AgentError):
    """Even what must be kept is over the limit. ``messages`` is that rest, already shortened."""

    def __init__(self, tokens: int, limit: int, messages: Sequence[Message]) -> None:
        self.tokens, self.limit, self.messages = tokens, limit, messages
        super().__init__(f"{tokens} tokens cannot be brought under {limit}")


@dataclass(frozen=True, slots=True)
class Older:
    """The older part of a conversation, up to ``through``: what a summary of ``longest`` characters is to stand for.

    A former summary is the first of ``messages``.
    """

    messages: list[Message]
    through: int
    longest: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """``dropped_through``: up to this position nothing but system messages and a summary is left; None: all are there."""

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
    newest user message and the calls and results of ``running_turn`` stay. A summary of what is gone already is
    shortened last.
    """
    everything = list(messages)
    if limit_tokens is None:
        return Compacted(everything, None)
    fixed = _fixed(instructions, tool_schemas)
    if _tokens(fixed, everything) <= limit_tokens:
        return Compacted(everything, None)

    shortened = _without_old_results(everything)
    groups = _turns(shortened)
    kept = set(range(len(groups)))
    protected = _protected(shortened, groups, running_turn)
    sizes = [_size(shortened[index] for index in group) for group in groups]
    characters, images = _size(shortened)
    characters += fixed

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
        rest = _with_shorter_summary(rest, characters - (limit_tokens - images * TOKENS_PER_IMAGE) * CHARACTERS_PER_TOKEN)
        left = _tokens(fixed, rest)
        if left > limit_tokens:
            raise TooLong(left, limit_tokens, rest)
    return Compacted(rest, _dropped_through(shortened, gone))


def _with_shorter_summary(messages: Sequence[Message], excess: int) -> list[Message]:
    """With the summary shorter by so many characters, or without it if too little of it would be left."""
    out: list[Message] = []
    for message in messages:
        if not message.summary:
            out.append(message)
        elif (longest := _content_size(message.content)[0] - excess) >= SHORTEST_SUMMARY:
            out.append(dataclasses.replace(message, content=cut(str(message.content), longest)))
    return out


def _dropped_through(messages: Sequence[Message], gone: Collection[int]) -> int | None:
    """How far everything is gone; a result that stood far behind its dropped call may lie beyond."""
    kept = (
        message.position
        for index, message in enumerate(messages)
        if message.role != "system" and not message.summary and index not in gone
    )
    first_kept = min(kept, default=math.inf)
    return max((position for index in gone if (position := messages[index].position) < first_kept), default=None)


# --- summaries -----------------------------------------------------------------------------------


def is_due(messages: Sequence[Message], instructions: str, tool_schemas: Sequence[ToolSchema], limit_tokens: int) -> bool:
    """Whether the conversation takes so much of the room that instructions, tools and system messages leave."""
    taken = _tokens(_fixed(instructions, tool_schemas), [message for message in messages if message.role == "system"])
    return tokens(messages, instructions, tool_schemas) - taken > DUE_SHARE * (limit_tokens - taken)


def has_to_go(messages: Sequence[Message], instructions: str, tool_schemas: Sequence[ToolSchema], limit_tokens: int) -> bool:
    """Whether turns have to go: old tool results without their content are not enough."""
    if tokens(messages, instructions, tool_schemas) <= limit_tokens:
        return False
    return tokens(_without_old_results(list(messages)), instructions, tool_schemas) > limit_tokens


def older(
    messages: Sequence[Message],
    instructions: str,
    tool_schemas: Sequence[ToolSchema],
    limit_tokens: int,
    running_turn: int | None,
) -> Older | None:
    """What a summary should stand for, so that the newest turns and the summary leave room for the next ones.

    Whole turns from the oldest, as in ``compact``, but none that it would keep. None: there is nothing to be
    summarised, or no room for a summary beside what stays.
    """
    everything = list(messages)
    fixed = _fixed(instructions, tool_schemas)
    groups = _turns(everything)
    protected = _protected(everything, groups, running_turn)
    system = _size(message for message in everything if message.role == "system")
    room = limit_tokens - _count(fixed + system[0], system[1])
    sizes = [_size(everything[index] for index in group) for group in groups]
    characters, images = (sum(each) for each in zip((0, 0), *sizes, strict=True))
    gone: set[int] = set()
    for number, group in enumerate(groups):
        if number in protected or _count(characters, images) <= KEPT_SHARE * room:
            break
        gone.update(group)
        characters, images = characters - sizes[number][0], images - sizes[number][1]
    through = _dropped_through(everything, gone)
    if through is None:
        return None
    stays = [message for index, message in enumerate(everything) if index not in gone and not message.summary]
    rest = _without_old_results(stays)
    characters, images = _size(rest)
    free = (limit_tokens - images * TOKENS_PER_IMAGE) * CHARACTERS_PER_TOKEN - fixed - characters
    longest = min(max(_TIGHT_SUMMARY, int(SUMMARY_SHARE * room * CHARACTERS_PER_TOKEN)), LONGEST_SUMMARY, free)
    if longest < SHORTEST_SUMMARY:
        return None
    told = [message for index, message in enumerate(everything) if index in gone or message.summary]
    return Older(told, through, longest)


def summary(text: str, through: int) -> Message:
    """The message that stands for what was said up to ``through``."""
    return Message("user", f"{SUMMARY_BEGINS}\n\n{text}", position=through, summary=True)


def with_summary(messages: Sequence[Message], standing: Message | None, through: int) -> list[Message]:
    """``messages`` with ``standing`` in place of all up to ``through`` but system messages, and of a former summary."""
    before = [each for each in messages if each.position <= through and each.role == "system"]
    after = [each for each in messages if each.position > through and not each.summary]
    return [*before, *([] if standing is None else [standing]), *after]


def cut(text: str, longest: int) -> str:
    """``text`` in at most ``longest`` characters."""
    return text if len(text) <= longest else text[: max(0, longest - 1)].rstrip() + "…"


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
    return _tokens(_fixed(instructions, tool_schemas), messages)


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
    """The indexes of all messages but system ones and a summary, by turn, oldest first.

    A seed has no turns of its own: there each user message begins one. A result belongs to where its
    call is, whichever turn it came in, so that the pair has one fate.
    """
    groups: list[list[int]] = []
    group_of: dict[int, int] = {}
    caller_of = {answer: caller for (caller, _), answer in _answers(messages).items()}
    current: int | None = None
    for index, message in enumerate(messages):
        if message.role == "system" or message.summary:
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
    users = [index for index, message in enumerate(messages) if message.role == "user" and not message.summary]
    # Results that stand before the running turn's own user message only closed what an earlier turn left open.
    begins = min((index for index in users if messages[index].turn == running_turn), default=-1)
    keep = {users[-1]} if users else set()
    if running_turn is not None:
        keep |= {index for index, message in enumerate(messages) if message.turn == running_turn and index >= begins}
    return {number for number, group in enumerate(groups) if keep.intersection(group)}


def _fixed(instructions: str, tool_schemas: Sequence[ToolSchema]) -> int:
    return len(instructions) + sum(_schema_size(schema) for schema in tool_schemas)


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
    """As it is declared to a model, in the widest of the usual ways to write JSON: what surrounds a schema is sent too."""
    declared = {"name": schema.name, "description": schema.description, "parameters": schema.parameters}
    return len(json.dumps({"type": "function", "function": declared}, ensure_ascii=False, default=str))
