"""Messages of users, as clients of AHP 0.9 and 1.0 send them, and the turns that they start (V140-V142, V150)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_9 import attached_chats
from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.user_messages import UserMessage, content_of
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import agents
from sessions_app.models import Session


class BadMessage(Exception):
    """The message is refused; the text is the reason, for people."""


def user_message(message: Mapping[str, Any]) -> UserMessage:
    """BadMessage if a client may not send it."""
    if message["origin"]["kind"] != "user":
        raise BadMessage("message.origin.kind: clients send messages of the kind user")
    if "agent" in message:
        raise BadMessage("message.agent: this host has no custom agents")
    for attachment in message.get("attachments", ()):
        if attachment["type"] == "annotations":
            raise BadMessage("message.attachments: this host reads no attachments of the type annotations")
    model = message.get("model")
    return UserMessage(message["text"], message.get("attachments"), None if model is None else {"id": model["id"]})


def shown(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message as it is stored and shown: without members that the host does not keep."""
    kept: dict[str, Any] = {"text": message["text"], "origin": {"kind": message["origin"]["kind"]}}
    if "attachments" in message:
        kept["attachments"] = message["attachments"]
    if "model" in message:
        kept["model"] = {"id": message["model"]["id"]}
    return kept


def check_model(caller: Caller, session: Session, message: Mapping[str, Any]) -> None:
    """BadMessage if the agent lacks the model that the message names."""
    model = message.get("model")
    if model is None:
        return
    if model["id"] not in agents.models(agents.for_turn(caller, session)):
        raise BadMessage("message.model.id: the agent has no model with this id")
    if model.get("config"):
        raise BadMessage("message.model.config: this model takes no configuration")


def files_of(caller: Caller, message: Mapping[str, Any], files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """All attached contents: ``files``, and the conversations as they are now. BadMessage if one of these cannot be attached."""
    try:
        return {**(files or {}), **attached_chats.read(caller, message)}
    except attached_chats.CannotAttach as fault:
        raise BadMessage(f"message.{fault}") from None


def start_turn(
    caller: Caller,
    session: Session,
    message: Mapping[str, Any],
    *,
    turn_id: str,
    started_at: str,
    files: Mapping[str, bytes] | None = None,
    client: str | None = None,
    dispatched: Dispatched | None,
) -> None:
    written = user_message(message)
    check_model(caller, session, message)
    spec = agents.for_turn(caller, session)
    turns.start(
        caller,
        session,
        content=content_of(written, spec.images, files_of(caller, message, files)),
        turn_id=turn_id,
        as_written=written,
        only_if_idle=True,
        started_at=started_at,
        client=client,
        dispatched=dispatched,
    )
