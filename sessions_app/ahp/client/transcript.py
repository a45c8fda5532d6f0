"""A session as text for a terminal, in any version of AHP: its state first, then the changes that actions make."""

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

    def begin(self, session: Mapping[str, Any], chat: Mapping[str, Any] | None = None) -> None:
        """``chat``: the state of its chat, in versions where that has the turns. A chat alone has no provider."""
        shown = session.get("summary", session)
        title = shown["title"] or shown.get("resource", "")
        self._line(f"== {title} ({shown['provider']})" if "provider" in shown else f"== {title}")
        of_turns = session if chat is None else chat
        for turn in of_turns["turns"]:
            self._turn(turn)
            self._line(f"-- {turn['state']}")
        if "activeTurn" in of_turns:
            self._turn(of_turns["activeTurn"])
        # Of 0.1; later they are parts of the turn.
        for request in session.get("inputRequests", ()):
            self._asked({"request": request})

    def end(self, reason: str) -> None:
        self._line(f"== {reason}")

    def take(self, envelope: Mapping[str, Any]) -> None:
        """Write the change of one action. Rejected actions change nothing."""
        if "rejectionReason" in envelope:
            return
        action = envelope["action"]
        kind, _, name = action["type"].partition("/")
        write = _WRITERS.get(name) if kind in ("session", "chat") else None
        if write is not None:
            write(self, action)

    # --- turns ---

    def _turn(self, turn: Mapping[str, Any]) -> None:
        self._user(turn)
        for part in turn["responseParts"]:
            match part["kind"]:
                case "toolCall":
                    call = part["toolCall"]
                    self._names[call["toolCallId"]] = call["displayName"]
                    self._line(f"[{call['displayName']}] {_short(_input(call))} {call['status']}")
                case "markdown" | "reasoning":
                    self._part(part)
                case "inputRequest":
                    self._asked(part)
                case "error":
                    self._line(f"-- error: {part['error']['message']}")

    def _user(self, turn: Mapping[str, Any]) -> None:
        """The message of a turn, or of the action that starts it."""
        message = turn["message"] if "message" in turn else turn["userMessage"]
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

    def _response_part(self, action: Mapping[str, Any]) -> None:
        if action["part"]["kind"] in ("markdown", "reasoning"):
            self._part(action["part"])

    def _delta(self, action: Mapping[str, Any]) -> None:
        self._piece(action["partId"], action["content"])

    def _call_started(self, action: Mapping[str, Any]) -> None:
        self._names[action["toolCallId"]] = action["displayName"]

    def _call_ready(self, action: Mapping[str, Any]) -> None:
        what = "runs" if "confirmed" in action else "waits for a confirmation"
        self._line(f"[{self._name(action)}] {_short(_input(action))} {what}")

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
        error = action["part"]["error"] if "part" in action else action["error"]
        self._line(f"-- error: {error['message']}")

    def _titled(self, action: Mapping[str, Any]) -> None:
        self._line(f"== {action['title']}")

    def _asked(self, action: Mapping[str, Any]) -> None:
        for question in action["request"].get("questions", ()):
            self._line(f"? {question['message']}")


_WRITERS: Mapping[str, Callable[[Transcript, Mapping[str, Any]], None]] = {
    "turnStarted": Transcript._user,
    "responsePart": Transcript._response_part,
    "delta": Transcript._delta,
    "reasoning": Transcript._delta,
    "toolCallStart": Transcript._call_started,
    "toolCallReady": Transcript._call_ready,
    "toolCallConfirmed": Transcript._call_confirmed,
    "toolCallComplete": Transcript._call_complete,
    "turnComplete": Transcript._completed,
    "turnCancelled": Transcript._cancelled,
    "error": Transcript._failed,
    "titleChanged": Transcript._titled,
    "inputRequested": Transcript._asked,
}
"""By the action's name. In 0.1 all are of a session; later most are of its chat."""


def _input(call: Mapping[str, Any]) -> str:
    """A call's input; hosts may send a reference to it."""
    given = call.get("toolInput", "")
    return given if isinstance(given, str) else str(given.get("uri", ""))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_INPUT else f"{line[:_LONGEST_INPUT]}…"


def printable(text: str) -> str:
    """Text of models and tools without control characters, which could move the cursor or change the title."""
    return _CONTROL.sub("�", text)
