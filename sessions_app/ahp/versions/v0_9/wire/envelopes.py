"""How actions of AHP 0.9 are sent: the envelope, the types of actions, and who may send which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, get_args

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_1.wire.envelopes import ActionOrigin
from sessions_app.ahp.versions.v0_9.wire.actions import StateAction
from sessions_app.core.base.errors import Fault
from sessions_app.core.base.shapes import Shape, members


class ActionEnvelope(TypedDict):
    channel: URI
    action: StateAction
    serverSeq: int
    origin: NotRequired[ActionOrigin]
    rejectionReason: NotRequired[str]


class RejectedEnvelope(TypedDict):
    """The action is as it was received."""

    channel: URI
    action: dict[str, Any]
    serverSeq: int
    origin: ActionOrigin
    rejectionReason: str


ACTION: Shape[StateAction] = Shape(StateAction)
ENVELOPE: Shape[ActionEnvelope] = Shape(ActionEnvelope)
REJECTED: Shape[RejectedEnvelope] = Shape(RejectedEnvelope)


def type_of(declared: Any) -> str:
    return str(get_args(members(declared)["type"].declared)[0])


def by_type(actions: Any) -> dict[str, tuple[Any, ...]]:
    """The declarations of a union of actions by their types: one, or two for ``chat/toolCallConfirmed``."""
    declared = get_args(actions)
    return {word: tuple(action for action in declared if type_of(action) == word) for word in map(type_of, declared)}


TYPES: Mapping[str, tuple[Any, ...]] = by_type(StateAction)

OF_CHANNELS_NOT_SERVED = frozenset(
    {
        *(
            f"changeset/{name}"
            for name in (
                *("statusChanged", "fileSet", "fileRemoved", "filesReviewChanged", "contentChanged", "operationsChanged"),
                *("operationStatusChanged", "cleared"),
            )
        ),
        *(f"annotations/{name}" for name in ("set", "updated", "removed", "entrySet", "entryRemoved")),
        *(f"automation/{name}" for name in ("createRequested", "updateRequested", "set", "removed")),
        *(
            f"automationRun/{name}"
            for name in ("lifecycleChanged", "sessionSet", "sessionRemoved", "primarySessionChanged", "cancelRequested")
        ),
    }
)
"""The types of actions on channels that do not exist here. They are known, and are not declared."""

KNOWN = frozenset(TYPES) | {"session/changesetsChanged"} | OF_CHANNELS_NOT_SERVED

FROM_CLIENTS = frozenset(
    {
        "root/configChanged",
        *(
            f"session/{name}"
            for name in (
                *("titleChanged", "activeClientSet", "activeClientRemoved", "isReadChanged", "isArchivedChanged"),
                *("workingDirectorySet", "workingDirectoryRemoved", "workingDirectoryReplaced", "customizationToggled"),
                *("mcpServerStartRequested", "mcpServerStopRequested", "configChanged"),
            )
        ),
        *(
            f"chat/{name}"
            for name in (
                *("turnStarted", "toolCallConfirmed", "toolCallComplete", "toolCallResultConfirmed", "toolCallContentChanged"),
                *("turnCancelled", "turnResume", "workingDirectorySet", "workingDirectoryRemoved", "pendingMessageSet"),
                *("pendingMessageRemoved", "queuedMessagesReordered", "draftChanged", "inputAnswerChanged"),
                *("inputCompleted", "truncated"),
            )
        ),
        *(f"terminal/{name}" for name in ("input", "resized", "claimed", "titleChanged", "cleared")),
        "changeset/filesReviewChanged",
        *(f"annotations/{name}" for name in ("set", "updated", "removed", "entrySet", "entryRemoved")),
        *(f"automation/{name}" for name in ("createRequested", "updateRequested", "removed")),
        "automationRun/cancelRequested",
    }
)
"""What a client may dispatch; the host may send every type."""


def envelope_faults(envelope: object) -> list[Fault]:
    """What is wrong with an envelope that the host is about to send. A rejected action may have any members."""
    if isinstance(envelope, dict) and "rejectionReason" in envelope:
        return REJECTED.faults(envelope)
    return ENVELOPE.faults(envelope)
