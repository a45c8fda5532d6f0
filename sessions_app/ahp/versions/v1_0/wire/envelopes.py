"""How actions of AHP 1.0 are sent, and who may send which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_1.wire.envelopes import ActionOrigin
from sessions_app.ahp.versions.v0_9.wire import envelopes as v0_9
from sessions_app.ahp.versions.v1_0.wire.actions import AddedAction, StateAction
from sessions_app.core.base.errors import Fault
from sessions_app.core.base.shapes import Shape


class ActionEnvelope(TypedDict):
    channel: URI
    action: StateAction
    serverSeq: int
    origin: NotRequired[ActionOrigin]
    rejectionReason: NotRequired[str]


ACTION: Shape[StateAction] = Shape(StateAction)
ENVELOPE: Shape[ActionEnvelope] = Shape(ActionEnvelope)

ADDED: Mapping[str, tuple[Any, ...]] = v0_9.by_type(AddedAction)
TYPES: Mapping[str, tuple[Any, ...]] = {**v0_9.TYPES, **ADDED}

KNOWN = v0_9.KNOWN | frozenset(ADDED) | {"chat/changesetsChanged", "chat/canvasesChanged", "canvas/stateChanged"}

FROM_CLIENTS = v0_9.FROM_CLIENTS | {"session/mcpServerBackgroundRequested", "chat/isReadChanged", "chat/isArchivedChanged"}


def envelope_faults(envelope: object) -> list[Fault]:
    """What is wrong with an envelope that the host is about to send. A rejected action may have any members."""
    if isinstance(envelope, dict) and "rejectionReason" in envelope:
        return v0_9.REJECTED.faults(envelope)
    return ENVELOPE.faults(envelope)
