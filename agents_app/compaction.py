"""Shortens a conversation to a model's limit: drops old turns or places a summary, and closes gaps in tool calls. Pure.

No stored history changes: the results are for the model (and for the compacted history, which shows the
model's input). A summary is one of the messages; runtime/summarising.py makes its text from the messages
that ``older`` returns.
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
"""A conversation that fills more than this share of its limit is due to be summarised."""
KEPT_SHARE = 0.4
"""The share of the limit that the newest turns keep in full beside a new summary."""
SUMMARY_SHARE = 0.2
LONGEST_SUMMARY, SHORTEST_SUMMARY = 16_000, 120
"""Characters, including the first line. A shorter summary is not worth a model call."""
_TIGHT_SUMMARY = 400
"""Characters that a summary may always have, if it fits, even where its share of the limit is less."""


class TooLong(AgentError):
    """The messages that must be kept exceed the limit. ``messages``: these messages, already shortened."""

    def __init__(self, tokens: int, limit: int, messages: Sequence[Message]) -> None:
        self.tokens, self.limit, self.messages = tokens, limit, messages
        super().__init__(f"{tokens} tokens cannot be brought under {limit}")


@dataclass(frozen=True, slots=True)
class Older:
    """The older part of a conversation, up to ``through``, to be summarised in ``longest`` characters.

    An earlier summary is the first of ``messages``.
    """

    messages: list[Message]
    through: int
    longest: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """``dropped_through``: up to this position only system messages and a summary are left; None: nothing was dropped."""

    messages: list[Message]
    dropped_through: int | None


def compact(
    messages: Sequence[Message],
    instructions: str,
    tool_schemas: Sequence[ToolSchema],
    limit_tokens: int | None,
    running_turn: int | None,
) -> Compacted:
    """``messages`` shortened to ``limit_tokens``, counting instructions and tools; ``TooLong`` if that is impossible.

    First old tool results lose their content, then whole turns are dropped, oldest first. System messages, the
    newest user message, and the calls and results of ``running_turn`` stay. The summary is shortened last.
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
    """``messages`` with the summary shorter by ``excess`` characters, or without it if too little would be left."""
    out: list[Message] = []
    for message in messages:
        if not message.summary:
            out.append(message)
        elif (longest := _content_size(message.content)[0] - excess) >= SHORTEST_SUMMARY:
            out.append(dataclasses.replace(message, content=cut(str(message.content), longest)))
    return out


def _dropped_through(messages: Sequence[Message], gone: Collection[int]) -> int | None:
    """The position up to which everything was dropped; a late result of a dropped call may be behind it."""
    kept = (
        message.position
        for index, message in enumerate(messages)
        if message.role != "system" and not message.summary and index not in gone
    )
    first_kept = min(kept, default=math.inf)
    return max((position for index in gone if (position := messages[index].position) < first_kept), default=None)


# --- summaries -----------------------------------------------------------------------------------


def is_due(messages: Sequence[Message], instructions: str, tool_schemas: Sequence[ToolSchema], limit_tokens: int) -> bool:
    """Whether the conversation fills ``DUE_SHARE`` of the tokens that instructions, tools and system messages leave."""
    taken = _tokens(_fixed(instructions, tool_schemas), [message for message in messages if message.role == "system"])
    return tokens(messages, instructions, tool_schemas) - taken > DUE_SHARE * (limit_tokens - taken)


def must_drop_turns(
    messages: Sequence[Message], instructions: str, tool_schemas: Sequence[ToolSchema], limit_tokens: int
) -> bool:
    """Whether turns have to be dropped, because dropping the content of old tool results is not enough."""
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
    """The messages to summarise, so that the newest turns and the summary leave space for the next turns.

    Whole turns from the oldest, as in ``compact``, without those that it keeps. None: there is nothing to
    summarise, or no space for a summary beside the rest.
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
    """The message with a summary of all messages up to ``through``."""
    return Message("user", f"{SUMMARY_BEGINS}\n\n{text}", position=through, summary=True)


def with_summary(messages: Sequence[Message], summary_message: Message | None, through: int) -> list[Message]:
    """``messages`` with ``summary_message`` instead of all but system messages up to ``through``, and of an earlier summary."""
    before = [each for each in messages if each.position <= through and each.role == "system"]
    after = [each for each in messages if each.position > through and not each.summary]
    return [*before, *([] if summary_message is None else [summary_message]), *after]


def cut(text: str, longest: int) -> str:
    """``text`` cut to at most ``longest`` characters."""
    return text if len(text) <= longest else text[: max(0, longest - 1)].rstrip() + "…"


def for_model(messages: Sequence[Message]) -> list[Message]:
    """The conversation with every call followed by its result, as model APIs require.

    A later result is moved up to its call; a call without a result gets ``NO_RESULT``; a result without a call
    is left out. Nothing else changes.
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
    """The estimated length of an input in tokens."""
    return _tokens(_fixed(instructions, tool_schemas), messages)


def _answers(messages: Sequence[Message]) -> dict[tuple[int, str], int]:
    """The index of the tool message of each answered call, by (index of the call's message, call id)."""
    callers: dict[str, int] = {}
    found: dict[tuple[int, str], int] = {}
    for index, message in enumerate(messages):
        for call in calls_of(message):
            callers[call["toolCallId"]] = index
        if message.role == "tool" and message.tool_call_id in callers:
            found.setdefault((callers[message.tool_call_id], message.tool_call_id), index)
    return found


def _without_old_results(messages: list[Message]) -> list[Message]:
    """``messages`` with the tool results of all steps but the last two replaced by a note of their length."""
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

    Seed messages have no turns: there each user message begins one. A result belongs to the turn of its call,
    so that both are kept or dropped together.
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
    """The groups to keep: that of the newest user message and those of the running turn."""
    users = [index for index, message in enumerate(messages) if message.role == "user" and not message.summary]
    # Results before the running turn's own user message only closed calls of an earlier turn.
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
    """(characters, images) that the model is sent; thinking is never sent back as text."""
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
    """The size of a declared tool in the longest usual JSON spelling, including what surrounds the schema."""
    declared = {"name": schema.name, "description": schema.description, "parameters": schema.parameters}
    return len(json.dumps({"type": "function", "function": declared}, ensure_ascii=False, default=str))
