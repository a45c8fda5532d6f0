"""How actions of AHP 0.1 travel: the envelope, who may send which, the resource one is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, get_args

from sessions_app.ahp.versions.v0_1.wire.actions import StateAction
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base.errors import Fault
from sessions_app.core.base.shapes import Number, Shape, members


class ActionOrigin(TypedDict):
    """Whose dispatch it was; ``clientSeq`` comes back as it was sent (R84)."""

    clientId: str
    clientSeq: Number


class ActionEnvelope(TypedDict):
    action: StateAction
    serverSeq: int
    origin: NotRequired[ActionOrigin]
    rejectionReason: NotRequired[str]


class _RejectedEnvelope(TypedDict):
    """The action is as it was received, fit or not (R83)."""

    action: dict[str, Any]
    serverSeq: int
    origin: ActionOrigin
    rejectionReason: str


ACTION: Shape[StateAction] = Shape(StateAction)
ENVELOPE: Shape[ActionEnvelope] = Shape(ActionEnvelope)
_REJECTED: Shape[_RejectedEnvelope] = Shape(_RejectedEnvelope)


def _type(action: Any) -> str:
    return str(get_args(members(action)["type"].declared)[0])


TYPES: Mapping[str, tuple[Any, ...]] = {
    word: tuple(action for action in get_args(StateAction) if _type(action) == word)
    for word in dict.fromkeys(map(_type, get_args(StateAction)))
}
"""Each type of action with its declarations: one, or two for ``session/toolCallConfirmed``."""

FROM_CLIENTS = frozenset(
    {
        "root/configChanged",
        "session/turnStarted",
        "session/turnCancelled",
        "session/toolCallConfirmed",
        "session/toolCallComplete",
        "session/toolCallResultConfirmed",
        "session/toolCallContentChanged",
        "session/titleChanged",
        "session/modelChanged",
        "session/activeClientChanged",
        "session/activeClientToolsChanged",
        "session/pendingMessageSet",
        "session/pendingMessageRemoved",
        "session/queuedMessagesReordered",
        "session/inputAnswerChanged",
        "session/inputCompleted",
        "session/customizationToggled",
        "session/truncated",
        "session/isReadChanged",
        "session/isArchivedChanged",
        "session/configChanged",
        "terminal/input",
        "terminal/resized",
        "terminal/claimed",
        "terminal/titleChanged",
        "terminal/cleared",
    }
)
"""What a client may dispatch (R85); the host may send every type (R87)."""


def resource(action: Mapping[str, Any]) -> str | None:
    """The URI that an action is about (R81); None if it names none, which no host has.

    An unknown type counts as well: its first word says where to look, and one of another kind is taken to be about whatever
    it carries, or else about the root, so that it can be answered.
    """
    word = action.get("type")
    kind = word.partition("/")[0] if isinstance(word, str) else ""
    if kind == "root":
        return ROOT
    if kind in ("session", "terminal"):
        uri = action.get(kind)
        return uri if isinstance(uri, str) else None
    for member in ("session", "terminal"):
        if member in action:
            uri = action[member]
            return uri if isinstance(uri, str) else None
    return ROOT


def envelope_faults(envelope: object) -> list[Fault]:
    """What is wrong with an envelope that the host is about to send; a rejected action is not looked into."""
    if isinstance(envelope, dict) and "rejectionReason" in envelope:
        found = _REJECTED.faults(envelope)
        if envelope["rejectionReason"] == "":
            found.append(Fault(("rejectionReason",), "must say something"))
        return found
    return ENVELOPE.faults(envelope)
