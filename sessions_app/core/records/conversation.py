"""What follows from a session's events for those who see only its summary: its state, and what waits for a person. Pure.

A client of a list does not fold a turn's events. So when these change a summary, events of their own say so, in the same
transaction, after their causes: ``attention_opened`` and ``attention_closed``, ``read_cleared``, ``chat_archived_changed``,
and last ``conversation_changed``. Protocols without them ignore these kinds.

An entry of attention is a call that needs a permission (``confirmation``), a call of a client's own tool (``execution``) or a
form (``form``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sessions_app.core.base import times
from sessions_app.core.base.events import Happening, Kind

Attention = Literal["confirmation", "execution", "form"]
State = Literal["idle", "failed", "working", "waiting"]

KINDS = frozenset(
    {
        Kind.TURN_STARTED,
        Kind.TURN_REOPENED,
        Kind.TURN_ENDED,
        Kind.TURN_FAILED,
        Kind.TURN_CANCELLED,
        Kind.HISTORY_CUT,
        Kind.CALL_READY,
        Kind.CALL_GRANTED,
        Kind.CALL_DENIED,
        Kind.CALL_FINISHED,
        Kind.CALL_RESULT_CONFIRMED,
        Kind.FORM_OPENED,
        Kind.FORM_CLOSED,
        Kind.ACTIVITY_CHANGED,
        Kind.TITLE_CHANGED,
        Kind.ARCHIVED_CHANGED,
        Kind.CHAT_READ_CHANGED,
    }
)
"""Kinds of events from which something may follow."""


FOLLOWING = frozenset(
    {Kind.ATTENTION_OPENED, Kind.ATTENTION_CLOSED, Kind.READ_CLEARED, Kind.CHAT_ARCHIVED_CHANGED, Kind.CONVERSATION_CHANGED}
)
"""Kinds of events that follow from others."""

STATE_KINDS = frozenset(
    {Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.CALL_READY, Kind.CALL_FINISHED, Kind.FORM_OPENED, Kind.FORM_CLOSED}
)
"""Kinds of a run's events that may change the state, so that the flags beside it have to be known."""


def needs_rows(happening: Happening) -> bool:
    """Whether what follows from a run's event depends on rows, also if no client has marked the session meanwhile."""
    kind = happening.kind
    return kind in (Kind.FORM_OPENED, Kind.FORM_CLOSED) or (
        kind is Kind.CALL_FINISHED and bool(happening.payload.get("reviewed"))
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What the events do not say. The functions are called only when they are needed.

    ``read``: the session is marked as read; ``chat_read``: its chat is; both as before the events. ``state``: of the chat after
    them. ``call``: a call as it is after them. ``voided``: the forms that the end of this turn has closed.
    """

    read: bool
    archived: bool
    chat_read: Callable[[], bool]
    state: Callable[[], State]
    call: Callable[[str], dict[str, Any]]
    voided: Callable[[str], Sequence[str]]


def call_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A call as its event ``call_ready`` describes it, with the members of ``CallView``."""
    return {
        "id": payload["call"],
        "name": payload["name"],
        "title": payload.get("title", ""),
        "client": payload.get("client"),
        "status": "asking" if payload["asks"] else "running",
        "input": payload["arguments"],
        "why": payload.get("why") or "not-needed",
        "preview": list(payload.get("edits", ())),
    }


def following(happenings: Sequence[Happening], facts: Facts) -> list[Happening]:
    """The events that follow from these of one session."""
    changes = _Changes(facts)
    for happening in happenings:
        changes.take(happening.kind, happening.payload)
    return changes.events()


class _Changes:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._attention: list[Happening] = []
        self._flags: list[Happening] = []
        self._cleared: str | None = None
        self._state: State | None = None
        self._asks_state = False
        self._values: dict[str, Any] = {}
        self._chat_read: bool | None = None
        self._archived = facts.archived

    def take(self, kind: Kind, payload: Mapping[str, Any]) -> None:
        match kind:
            case Kind.TURN_STARTED if "started_at" in payload:
                self._now("working")
                self._unread("turn")
                self._values["modified_at"] = payload["started_at"]
            case Kind.TURN_REOPENED:
                self._now("working")
                self._unread("turn")
            case Kind.TURN_ENDED | Kind.TURN_FAILED | Kind.TURN_CANCELLED if "started_at" in payload:
                self._now("failed" if kind is Kind.TURN_FAILED else "idle")
                if kind is not Kind.TURN_ENDED:
                    # An agent ends its turn only when nothing in it is open.
                    for form in self._facts.voided(payload["turn"]):
                        self._close("form", payload["turn"], form, at_end=True)
                if payload.get("duration_ms") is not None:
                    self._values["modified_at"] = times.after(payload["started_at"], payload["duration_ms"])
            case Kind.HISTORY_CUT:
                self._asks_state = True
            case Kind.TITLE_CHANGED:
                self._values["title"] = payload["title"]
            case Kind.ACTIVITY_CHANGED:
                self._values["activity"] = payload["activity"]
            case Kind.ARCHIVED_CHANGED:
                self._archived = payload["archived"]
                # The client that dispatched it for the chat gets its echo there.
                said = payload.get("origin", {}).get("said", {})
                origin = {"origin": payload["origin"]} if str(said.get("type")).startswith("chat/") else {}
                self._flags = [Happening(Kind.CHAT_ARCHIVED_CHANGED, {"archived": payload["archived"], **origin})]
                self._values["flags"] = True
            case Kind.CHAT_READ_CHANGED:
                self._chat_read = payload["read"]
                self._values["flags"] = True
            case Kind.FORM_OPENED:
                self._open("form", payload["turn"], {"form": payload["form"]})
                self._unread("form")
            case Kind.FORM_CLOSED:
                self._close("form", payload["turn"], payload["form"])
            case _:
                self._take_call(kind, payload)

    def _take_call(self, kind: Kind, payload: Mapping[str, Any]) -> None:
        match kind:
            case Kind.CALL_READY if payload["asks"]:
                self._open("confirmation", payload["turn"], {"call": call_of(payload)})
            case Kind.CALL_READY if payload.get("client"):
                self._open("execution", payload["turn"], {"call": call_of(payload)})
            case Kind.CALL_FINISHED:
                if payload.get("client"):
                    self._close("execution", payload["turn"], payload["call"])
                if payload.get("reviewed"):
                    self._open("confirmation", payload["turn"], {"call": self._facts.call(payload["call"])})
            case Kind.CALL_DENIED if payload.get("closing"):
                if payload.get("open"):
                    self._close(payload["open"], payload["turn"], payload["call"], at_end=True)
            case Kind.CALL_GRANTED | Kind.CALL_DENIED | Kind.CALL_RESULT_CONFIRMED:
                self._close("confirmation", payload["turn"], payload["call"])

    def _now(self, state: State) -> None:
        self._state, self._asks_state = state, False

    def _unread(self, cause: str) -> None:
        self._chat_read = False
        self._cleared = self._cleared or cause

    def _open(self, kind: Attention, turn: str, what: dict[str, Any]) -> None:
        self._attention.append(Happening(Kind.ATTENTION_OPENED, {"kind": kind, "turn": turn, **what}))
        if kind != "execution":
            self._now("waiting")

    def _close(self, kind: Attention, turn: str, of: str, *, at_end: bool = False) -> None:
        """``at_end``: of its turn, whose event says the state."""
        self._attention.append(Happening(Kind.ATTENTION_CLOSED, {"kind": kind, "turn": turn, "of": of}))
        if kind != "execution" and not at_end:
            self._asks_state = True

    def events(self) -> list[Happening]:
        found = [*self._flags, *self._attention]
        if self._cleared is not None and self._facts.read:
            found.append(Happening(Kind.READ_CLEARED, {"cause": self._cleared}))
        state = self._facts.state() if self._asks_state else self._state
        if state is None and "flags" in self._values:
            state = self._facts.state()
        else:
            self._values.update({} if state is None else {"state": state})
        if self._values:
            changed = sorted(self._values.keys())
            values = {name: value for name, value in self._values.items() if name != "flags"}
            if state is not None:
                read = self._facts.chat_read() if self._chat_read is None else self._chat_read
                values |= {"state": state, "read": read, "archived": self._archived}
            found.append(Happening(Kind.CONVERSATION_CHANGED, {"changed": changed, **values}))
        return found
