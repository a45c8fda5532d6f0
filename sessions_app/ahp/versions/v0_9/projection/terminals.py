"""Terminals as AHP 0.9 and 1.0 show them: states, entries of the root's list, and the actions of their events.

What is the same in 0.1 comes from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.projection import actions as v0_1_actions
from sessions_app.ahp.versions.v0_1.projection import terminals as v0_1
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection.context import Context, Made, Make, Payload, as_in_0_1
from sessions_app.ahp.versions.v0_9.spelling import chat_uri, session_uri
from sessions_app.core.base.events import Kind
from sessions_app.core.terminals.state import TerminalView


def claim_of(document: Mapping[str, Any], face: Face) -> dict[str, Any]:
    claim = v0_1.claim_of(document)
    if claim["kind"] == "session":
        if document.get("id") is not None:
            names = document["session"], document["family"], document["agent"], document["id"]
            claim["session"] = session_uri(*names, by_provider=face.by_provider)
        # Claims of an earlier release have only the core's URI, by which the session is found too.
        claim["chat"] = chat_uri(claim["session"])
    return claim


def info_of(entry: Mapping[str, Any], face: Face) -> dict[str, Any]:
    """A terminal in the root's state. Entries of an earlier release have no ``exited`` beside a missing code."""
    return {
        "resource": entry["uri"],
        "title": entry["title"],
        "claim": claim_of(entry["claim"], face),
        "lifecycle": lifecycle_of(entry.get("code"), has_exited=entry.get("exited", "code" in entry)),
    }


def lifecycle_of(code: int | None, *, has_exited: bool) -> dict[str, Any]:
    if not has_exited:
        return {"status": "running"}
    return {"status": "exited"} if code is None else {"status": "exited", "exitCode": code}


def state_of(view: TerminalView, face: Face) -> dict[str, Any]:
    shown = v0_1.state_of(view)
    shown.pop("exitCode", None)
    shown["claim"] = claim_of(view.claim.document(), face)
    shown["lifecycle"] = lifecycle_of(view.exit_code, has_exited=view.has_exited)
    return {**shown, "isPty": True}


def _claimed(payload: Payload, context: Context) -> Made:
    return "claimed", {"claim": claim_of(payload["claim"], context.face)}


OF_TERMINALS: Mapping[str, Make] = {
    **{kind: as_in_0_1(make) for kind, make in v0_1_actions.OF_TERMINALS.items()},
    Kind.TERMINAL_CLAIMED: _claimed,
}
