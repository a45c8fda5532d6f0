"""Encodes the core's events as server-sent events.

Pure: events in, bytes out; sse.py reads events and sends bytes. Only the protocol's rules are here: which events a mode
has (A55), where a run begins and where it ends (A56).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import orjson

from agents_app import exact_json
from sessions_app.core.base.events import RUN_START_KINDS, Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.turns import failures

Mode = Literal["delta", "message"]
StopReason = str

KEEP_ALIVE = b": keep-alive\n"
"""A comment line alone: with an empty line, simple parsers would find an empty event."""
KEY_ENDED = b": this key is no longer valid\n"
"""The last line of a stream whose key has ended (A2)."""

_TURN_END_KINDS = frozenset({Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.TURN_CANCELLED})


def stop_reason(event: Event) -> StopReason | None:
    """Why the run stopped, if this event ends one. A turn that ends while it waits has no run (in_run false)."""
    if event.kind in _TURN_END_KINDS:
        payload = orjson.loads(event.data)
        if not payload["in_run"]:
            return None
        return "error" if event.kind == Kind.TURN_FAILED else payload["reason"]
    return "tool_use" if event.kind == Kind.RUN_PAUSED else None


def may_end_key(event: Event) -> bool:
    """Whether the turn was stopped by revoking a key or suspending a tenant, which may be the reader's own."""
    return event.kind == Kind.TURN_CANCELLED and orjson.loads(event.data)["cause"] in ("revoked", "suspended")


class SSEEncoder:
    """Encodes events for one reader. ``position`` turns an event's number into a position of this session."""

    def __init__(self, mode: Mode, position: Callable[[int], str]) -> None:
        self._position = position
        self._shown = _SHOWN_IN[mode]

    def opening(self, seq: int) -> bytes:
        """The ``turn_start`` of the run that began with event ``seq``."""
        return self.framed(seq, b"turn_start", b"{}")

    def encode(self, event: Event) -> bytes:
        """The event's bytes; empty if this mode does not have it."""
        shown = self._shown.get(event.kind)
        if shown is None:
            return b""
        name, data_of = shown
        data = data_of(event)
        if data is None:
            return b""
        return _remark(event) + self.framed(event.seq, name, data)

    def framed(self, seq: int, name: bytes, data: bytes) -> bytes:
        """An event's bytes, with the position of the journal's event ``seq``."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self._position(seq).encode(), name, data)


class RunEnd:
    """Decides when a stream ends: at or after event ``bound``, as soon as no run is open.

    ``inside``: the reader's position is within a run that has not ended. ``bound`` None: never.
    """

    def __init__(self, bound: int | None, *, inside: bool = False) -> None:
        self._bound = bound
        self.inside = inside

    @property
    def follows(self) -> bool:
        return self._bound is None

    def reached(self, event: Event) -> bool:
        if event.kind == Kind.SESSION_DELETED:
            return True
        if event.kind in RUN_START_KINDS:
            self.inside = True
        elif stop_reason(event) is not None:
            self.inside = False
        return self._bound is not None and not self.inside and event.seq >= self._bound


# --- the data of an event, by kind: JSON on one line, or None to send no event ---


def _start(_event: Event) -> bytes | None:
    return b"{}"


def _delta(event: Event) -> bytes | None:
    payload = orjson.loads(event.data)
    # Late: thinking after the text has begun. The order of A57 has no place for it.
    if payload.get("late") or not payload["delta"]:
        return None
    return orjson.dumps({"delta": payload["delta"]})


def _whole(member: str) -> Callable[[Event], bytes | None]:
    def data(event: Event) -> bytes | None:
        text = orjson.loads(event.data)[member]
        return orjson.dumps({member: text}) if text else None

    return data


def _call(event: Event) -> bytes | None:
    payload = exact_json.loads(event.data)
    return _exact({"toolCallId": payload["call"], "name": payload["name"], "input": payload["input"]})


def _result(event: Event) -> bytes | None:
    payload = exact_json.loads(event.data)
    # A result under review is sent after a client has confirmed or denied it.
    if not payload["shown"] or payload.get("reviewed"):
        return None
    return _exact({"toolCallId": payload["call"], "content": payload["content"]})


def _stop(event: Event) -> bytes | None:
    reason = stop_reason(event)
    return None if reason is None else orjson.dumps({"stopReason": reason})


def _remark(event: Event) -> bytes:
    """A comment line with the code of an error that the client's own key or choice caused. No event has a member for it."""
    if event.kind != Kind.TURN_FAILED:
        return b""
    code: str = orjson.loads(event.data)["error"]
    return f": error {code}\n".encode() if code in failures.OF_CLIENTS else b""


def _exact(data: dict[str, Any]) -> bytes:
    return exact_json.dumps(data).encode()


_Shown = dict[str, tuple[bytes, Callable[[Event], bytes | None]]]
_BOTH: _Shown = {
    Kind.TURN_STARTED: (b"turn_start", _start),
    Kind.TURN_RESUMED: (b"turn_start", _start),
    Kind.CALL_READY: (b"tool_call", _call),
    Kind.CALL_DENIED: (b"tool_result", _result),
    Kind.CALL_FINISHED: (b"tool_result", _result),
    Kind.CALL_RESULT_CONFIRMED: (b"tool_result", _result),
    Kind.RUN_PAUSED: (b"turn_stop", _stop),
    Kind.TURN_ENDED: (b"turn_stop", _stop),
    Kind.TURN_FAILED: (b"turn_stop", _stop),
    Kind.TURN_CANCELLED: (b"turn_stop", _stop),
}
_SHOWN_IN: dict[str, _Shown] = {
    "delta": {**_BOTH, Kind.TEXT_DELTA: (b"text_delta", _delta), Kind.THINKING_DELTA: (b"thinking_delta", _delta)},
    "message": {**_BOTH, Kind.TEXT_DONE: (b"text", _whole("text")), Kind.THINKING_DONE: (b"thinking", _whole("thinking"))},
}


def event_names(mode: Mode) -> frozenset[str]:
    """The events that a stream of this mode may have."""
    return frozenset(name.decode() for name, _data in _SHOWN_IN[mode].values())
