"""Claims of terminals, as clients of AHP 0.9 and 1.0 send them (V232)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_9 import addresses
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.terminals.types import Claim


class BadClaim(Exception):
    """The claim is refused; the text is the reason, for people."""


def read(caller: Caller, claim: Mapping[str, Any]) -> Claim:
    """The core's value. SessionNotFound if there is no such session; BadClaim if the chat is not the session's."""
    if claim["kind"] == "client":
        return Claim(client=claim["clientId"])
    found = addresses.find_all(caller, {claim["session"], claim["chat"]})
    session, chat = found.get(claim["session"]), found.get(claim["chat"])
    if session is None or session.kind != "session":
        raise SessionNotFound
    if chat is None or chat.kind != "chat" or chat.session.pk != session.session.pk:
        raise BadClaim("claim.chat must be the URI of the chat of claim.session")
    return Claim(session=session.uri, turn=claim.get("turnId"), call=claim.get("toolCallId"))
