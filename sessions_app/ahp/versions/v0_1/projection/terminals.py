"""Terminals as AHP 0.1 shows them, and claims as it sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.core.terminals.screen import Part
from sessions_app.core.terminals.state import TerminalView
from sessions_app.core.terminals.types import Claim


def claim_of(document: Mapping[str, Any]) -> dict[str, Any]:
    if "client" in document:
        return {"kind": "client", "clientId": document["client"]}
    claim = {"kind": "session", "session": document["session"]}
    return claim | {member: document[name] for member, name in (("turnId", "turn"), ("toolCallId", "call")) if name in document}


def claim_from(claim: Mapping[str, Any]) -> Claim:
    """A claim on the wire as the core's value."""
    if claim["kind"] == "client":
        return Claim(client=claim["clientId"])
    return Claim(session=claim["session"], turn=claim.get("turnId"), call=claim.get("toolCallId"))


def info_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A terminal in the root state."""
    info = {"resource": entry["uri"], "title": entry["title"], "claim": claim_of(entry["claim"])}
    return {**info, "exitCode": entry["code"]} if "code" in entry else info


def outcome_of(command: Mapping[str, Any]) -> dict[str, Any]:
    return {
        member: command[name] for member, name in (("exitCode", "code"), ("durationMs", "ms")) if command.get(name) is not None
    }


def state_of(view: TerminalView) -> dict[str, Any]:
    state: dict[str, Any] = {
        "title": view.title,
        "cols": view.cols,
        "rows": view.rows,
        "content": [part_of(part) for part in view.screen.parts],
        "claim": claim_of(view.claim.document()),
    }
    if view.cwd:
        state["cwd"] = view.cwd
    if view.exit_code is not None:
        state["exitCode"] = view.exit_code
    if view.screen.detects:
        state["supportsCommandDetection"] = True
    return state


def part_of(part: Part) -> dict[str, Any]:
    if part.command is None:
        return {"type": "unclassified", "value": part.text}
    return {
        "type": "command",
        "commandId": part.command,
        "commandLine": part.line,
        "output": part.text,
        "timestamp": part.at,
        "isComplete": part.is_complete,
        **outcome_of({"code": part.code, "ms": part.ms}),
    }
