"""Terminals in AHP 0.9: who holds one, what it shows."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalClientClaim, TerminalContentPart


class TerminalSessionClaim(TypedDict):
    kind: Literal["session"]
    session: URI
    turnId: NotRequired[str]
    toolCallId: NotRequired[str]
    chat: URI


TerminalClaim = TerminalClientClaim | TerminalSessionClaim


class TerminalCommandResult(TypedDict):
    exitCode: NotRequired[int]
    preview: NotRequired[str]
    truncated: NotRequired[bool]


class TerminalLifecycleStateRunning(TypedDict):
    status: Literal["running"]


class TerminalLifecycleStateExited(TypedDict):
    status: Literal["exited"]
    exitCode: NotRequired[int]


TerminalLifecycleState = TerminalLifecycleStateRunning | TerminalLifecycleStateExited


class TerminalInfo(TypedDict):
    resource: URI
    title: str
    claim: TerminalClaim
    lifecycle: TerminalLifecycleState


class TerminalState(TypedDict):
    title: str
    cwd: NotRequired[URI]
    cols: NotRequired[int]
    rows: NotRequired[int]
    content: list[TerminalContentPart]
    claim: TerminalClaim
    supportsCommandDetection: NotRequired[bool]
    isPty: NotRequired[bool]
    lifecycle: TerminalLifecycleState
