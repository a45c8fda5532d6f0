"""Tool calls that wait for a client, from events and from a history. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenthost.client.runs import events_of_message


@dataclass(slots=True)
class Call:
    id: str
    name: str
    input: Mapping[str, Any]
    shown_whole: bool = True
    was_granted: bool = False
    """The call was allowed and has run; now its result waits for approval (``confirm_result``)."""


def pending(history: Sequence[Mapping[str, Any]]) -> dict[str, Call]:
    """The calls without a result at the end of a history (A71). Any client that reads it can answer them."""
    done: set[str] = set()
    for message in reversed(history):
        if message.get("role") == "tool":
            done.add(str(message.get("toolCallId")))
            continue
        pending_calls = (call_of_event(each.data) for each in events_of_message(message) if each.name == "tool_call")
        return {call.id: call for call in pending_calls if call.id not in done}
    return {}


def call_of_event(data: Mapping[str, Any]) -> Call:
    arguments = data.get("input")
    return Call(str(data.get("toolCallId", "")), str(data.get("name", "")), arguments if isinstance(arguments, dict) else {})
