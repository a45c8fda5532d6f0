"""Conversations that are attached to a message: found for its sender, and read when the message is accepted (V150)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_9 import addresses
from sessions_app.core.base import byte_budget
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AnswersFull, NotPossible, SessionNotFound, TurnUnknown
from sessions_app.core.base.user_messages import key_of_chat
from sessions_app.core.sessions import transcripts

MOST = 4
"""Conversations of one message."""


class CannotAttach(Exception):
    """The text is the reason, for people."""


def are_in(message: Any) -> bool:
    """Whether a message, which was not validated yet, has such attachments."""
    attachments = message.get("attachments") if isinstance(message, dict) else None
    return isinstance(attachments, list) and any(isinstance(each, dict) and each.get("type") == "chat" for each in attachments)


def read(caller: Caller, message: Mapping[str, Any]) -> dict[str, bytes]:
    """The transcripts, as attached files of the message. CannotAttach if one cannot be attached.

    A chat that the caller may not see does not exist.
    """
    attached = {
        key_of_chat(each): (f"attachments.{index}", each)
        for index, each in enumerate(message.get("attachments", ()))
        if each["type"] == "chat"
    }
    if len(attached) > MOST:
        raise CannotAttach(f"attachments: {len(attached)} conversations; the limit is {MOST}")
    with byte_budget.answering(caller.tenant):
        return {key: _read(caller, place, each).encode("utf-8", "surrogatepass") for key, (place, each) in attached.items()}


def _read(caller: Caller, place: str, attachment: Mapping[str, Any]) -> str:
    try:
        found = addresses.find(caller, attachment["resource"])
        if found is None or found.kind != "chat":
            raise SessionNotFound
        return transcripts.read(caller, found.session, attachment.get("endTurn"))
    except SessionNotFound:
        raise CannotAttach(f"{place}.resource: there is no such chat") from None
    except TurnUnknown:
        raise CannotAttach(f"{place}.endTurn: the chat has no completed turn with this id") from None
    except NotPossible as error:
        raise CannotAttach(f"{place}.resource: {error.reason}") from None
    except AnswersFull:
        raise CannotAttach(f"{place}.resource: too much of this tenant is being read now; try again") from None
