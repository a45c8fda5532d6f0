"""A session as text for a terminal: its state first, then the changes that actions make."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LONGEST_INPUT = 200


class Transcript:
    """``write`` gets pieces of text; joined they are the transcript."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._open: str | None = None
        self._kinds: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def begin(self, state: Mapping[str, Any]) -> None:
        summary = state["summary"]
        self._line(f"== {summary['title'] or summary['resource']} ({summary['provider']})")
        for turn in state["turns"]:
            self._turn(turn)
            self._line(f"-- {turn['state']}")
        if "activeTurn" in state:
            self._turn(state["activeTurn"])

    def end(self, reason: str) -> None:
        self._line(f"== {reason}")

    def take(self, envelope: Mapping[str, Any]) -> None:
        """Write the change of one action. Rejected actions change nothing."""
        if "rejectionReason" in envelope:
            return
        action = envelope["action"]
        write = _WRITERS.get(action["type"])
        if write is not None:
            write(self, action)

    # --- turns ---

    def _turn(self, turn: Mapping[str, Any]) -> None:
        self._user(turn["userMessage"])
        for part in turn["responseParts"]:
            if part["kind"] == "toolCall":
                call = part["toolCall"]
                self._names[call["toolCallId"]] = call["displayName"]
                self._line(f"[{call['displayName']}] {_short(call.get('toolInput', ''))} {call['status']}")
            elif part["kind"] in ("markdown", "reasoning"):
                self._part(part)

    def _user(self, message: Mapping[str, Any]) -> None:
        more = "".join(f" [{each['label']}]" for each in message.get("attachments", ()))
        self._line(f"> {message['text']}{more}")

    def _part(self, part: Mapping[str, Any]) -> None:
        self._kinds[part["id"]] = part["kind"]
        if part["content"]:
            self._piece(part["id"], part["content"])

    def _piece(self, part: str, text: str) -> None:
        if self._open != part:
            self._close()
            self._open = part
            if self._kinds.get(part) == "reasoning":
                self._write("(thinking) ")
        self._write(printable(text))

    def _line(self, text: str) -> None:
        self._close()
        self._write(printable(text.rstrip()) + "\n")

    def _close(self) -> None:
        if self._open is not None:
            self._open = None
            self._write("\n")

    # --- actions ---

    def _started(self, action: Mapping[str, Any]) -> None:
        self._user(action["userMessage"])

    def _response_part(self, action: Mapping[str, Any]) -> None:
        if action["part"]["kind"] in ("markdown", "reasoning"):
            self._part(action["part"])

    def _delta(self, action: Mapping[str, Any]) -> None:
        self._piece(action["partId"], action["content"])

    def _call_started(self, action: Mapping[str, Any]) -> None:
        self._names[action["toolCallId"]] = action["displayName"]

    def _call_ready(self, action: Mapping[str, Any]) -> None:
        what = "runs" if "confirmed" in action else "waits for a confirmation"
        self._line(f"[{self._name(action)}] {_short(action.get('toolInput', ''))} {what}")

    def _call_confirmed(self, action: Mapping[str, Any]) -> None:
        self._line(f"[{self._name(action)}] {'approved' if action['approved'] else action['reason']}")

    def _call_complete(self, action: Mapping[str, Any]) -> None:
        texts = [block["text"] for block in action["result"].get("content", ()) if block["type"] == "text"]
        self._line(f"[{self._name(action)}] {'done' if action['result']['success'] else 'failed'}: {_short(' '.join(texts))}")

    def _name(self, action: Mapping[str, Any]) -> str:
        call = str(action["toolCallId"])
        return self._names.get(call, call)

    def _completed(self, _action: Mapping[str, Any]) -> None:
        self._line("-- complete")

    def _cancelled(self, _action: Mapping[str, Any]) -> None:
        self._line("-- cancelled")

    def _failed(self, action: Mapping[str, Any]) -> None:
        self._line(f"-- error: {action['error']['message']}")

    def _titled(self, action: Mapping[str, Any]) -> None:
        self._line(f"== {action['title']}")

    def _asked(self, action: Mapping[str, Any]) -> None:
        for question in action["request"].get("questions", ()):
            self._line(f"? {question['message']}")


_WRITERS: Mapping[str, Callable[[Transcript, Mapping[str, Any]], None]] = {
    "session/turnStarted": Transcript._started,
    "session/responsePart": Transcript._response_part,
    "session/delta": Transcript._delta,
    "session/reasoning": Transcript._delta,
    "session/toolCallStart": Transcript._call_started,
    "session/toolCallReady": Transcript._call_ready,
    "session/toolCallConfirmed": Transcript._call_confirmed,
    "session/toolCallComplete": Transcript._call_complete,
    "session/turnComplete": Transcript._completed,
    "session/turnCancelled": Transcript._cancelled,
    "session/error": Transcript._failed,
    "session/titleChanged": Transcript._titled,
    "session/inputRequested": Transcript._asked,
}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_INPUT else f"{line[:_LONGEST_INPUT]}…"


def printable(text: str) -> str:
    """Text of models and tools without control characters, which could move the cursor or change the title."""
    return _CONTROL.sub("�", text)
