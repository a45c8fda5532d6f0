"""Terminals in AHP 0.1: who holds one, what it shows."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI


class TerminalClientClaim(TypedDict):
    kind: Literal["client"]
    clientId: str


class TerminalSessionClaim(TypedDict):
    kind: Literal["session"]
    session: URI
    turnId: NotRequired[str]
    toolCallId: NotRequired[str]


TerminalClaim = TerminalClientClaim | TerminalSessionClaim


class TerminalInfo(TypedDict):
    resource: URI
    title: str
    claim: TerminalClaim
    exitCode: NotRequired[int]


class TerminalUnclassifiedPart(TypedDict):
    type: Literal["unclassified"]
    value: str


class TerminalCommandPart(TypedDict):
    type: Literal["command"]
    commandId: str
    commandLine: str
    output: str
    timestamp: int
    isComplete: bool
    exitCode: NotRequired[int]
    durationMs: NotRequired[int]


TerminalContentPart = TerminalUnclassifiedPart | TerminalCommandPart


class TerminalState(TypedDict):
    title: str
    cwd: NotRequired[URI]
    cols: NotRequired[int]
    rows: NotRequired[int]
    content: list[TerminalContentPart]
    exitCode: NotRequired[int]
    claim: TerminalClaim
    supportsCommandDetection: NotRequired[bool]
