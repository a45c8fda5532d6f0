"""What goes into the state machine of a turn and comes out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agents_app import exact_json
from agents_app.runtime.loop import INTERRUPTED
from agents_app.runtime.messages import Content
from sessions_app.core.base import content
from sessions_app.core.records import history
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import quotas
from sessions_app.models import TurnState


@dataclass(frozen=True, slots=True)
class Accepted:
    """A turn that will end. ``start`` is the number of the event that began this run.

    ``repeated``: the request came before and was accepted then. Its events may be kept no longer;
    ``start`` is 0 then. ``standings``: where the caller's rates stand after it.
    """

    turn_id: int
    public_id: str
    run: int
    start: int
    repeated: bool = False
    standings: tuple[quotas.Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client says a call gave. ``index`` is its place in the request, for faults.

    ``reviewed``: the model gets it only after a client has released it.
    """

    index: int
    call_id: str
    content: Content = field(repr=False)
    failed: bool = False
    outcome: dict[str, Any] | None = field(default=None, repr=False)
    """The client's own account of it, for other clients."""
    form: FormEnd | None = None
    reviewed: bool = False


@dataclass(frozen=True, slots=True)
class FormEnd:
    """How the form of a call was closed. ``answers`` None: those that stand."""

    response: Literal["accept", "decline", "cancel"]
    answers: dict[str, Any] | None = field(default=None, repr=False)
    dispatched: Dispatched | None = None


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a server tool may run, or its result be used. ``arguments``: what the client has made of the call's."""

    index: int
    call_id: str
    granted: bool
    reason: str = ""
    option: str = ""
    arguments: str | None = field(default=None, repr=False)
    how: Literal["denied", "skipped"] = "denied"
    suggestion: dict[str, Any] | None = field(default=None, repr=False)
    why: Literal["not-needed", "user-action", "setting"] = "user-action"
    shown_reason: Any = None

    @property
    def advice(self) -> dict[str, Any] | None:
        """What of a denial is kept for other clients besides its words."""
        members = {"suggestion": self.suggestion, "reason": self.shown_reason}
        there = {name: value for name, value in members.items() if value is not None}
        return there or None

    @property
    def told(self) -> str:
        """What the model hears of a denial."""
        suggested = (self.suggestion or {}).get("text", "")
        return " ".join(each for each in (self.reason, suggested and f"The user suggests: {suggested}") if each)


Answer = ClientResult | Permission


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """``provider_closed``: the call to the provider is known to be closed (or there was none)."""

    cancelled: bool
    provider_closed: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a turn is stopped from outside its run, and what its stream says. ``failure``: why, as facts for operators."""

    cause: Literal["client", "cut", "deadline", "deleted", "suspended", "revoked", "limit", "interrupted", "internal"]
    reason: Literal["end_turn", "error"]
    failure: Mapping[str, Any] | None = None

    @property
    def state(self) -> TurnState:
        return TurnState.ERROR if self.cause in ("limit", "interrupted", "internal") else TurnState.CANCELLED

    @property
    def closing_of_running(self) -> str:
        """What a call that may have run is told; who cancels knows that it was cut."""
        return history.CANCELLED if self.state is TurnState.CANCELLED else INTERRUPTED


@dataclass(frozen=True, slots=True)
class Stopped:
    """A turn that was stopped; ``worker`` is who was running it, if anybody."""

    turn_id: int
    worker: str


@dataclass(frozen=True, slots=True)
class Visitor:
    """The session's client that takes part now, and its tools."""

    id: str
    tools: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A turn that this worker may run: its writes are valid while its fence is ``fence``."""

    turn_id: int
    tenant: int
    session: int
    fence: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's word on a call that asks. ``input``: the argument text that it shall run with instead."""

    approved: bool
    option: str | None = None
    input: str | None = field(default=None, repr=False)
    how: Literal["denied", "skipped"] = "denied"
    reason: str = ""
    suggestion: dict[str, Any] | None = field(default=None, repr=False)
    why: Literal["not-needed", "user-action", "setting"] = "user-action"
    """What the client says made it approve."""
    shown_reason: Any = None
    """The reason in the client's own form, if that is more than its words."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A client's account of what its tool did. ``content``: blocks as the client has them; ``error``: message, code?."""

    success: bool
    message: Any
    content: list[dict[str, Any]] | None = field(default=None, repr=False)
    structured: dict[str, Any] | None = field(default=None, repr=False)
    error: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        members = {"content": self.content, "structured": self.structured, "error": self.error}
        there = {name: value for name, value in members.items() if value is not None}
        return {"success": self.success, "message": self.message, **there}

    def for_model(self, images: Collection[str]) -> Content:
        """Text and images as the client gave them, else the structured content, else the error.

        ``images``: those the agent takes. InvalidInput for a broken one.
        """
        blocks = [
            block
            for index, given in enumerate(self.content or [])
            if (block := _for_model(given, images, ("result", "content", index))) is not None
        ]
        if len(blocks) == 1 and blocks[0]["type"] == "text":
            return str(blocks[0]["text"])
        if blocks:
            return blocks
        if self.structured is not None:
            return exact_json.dumps(self.structured)
        return "" if self.error is None else f"Tool execution failed: {self.error.get('message', '')}"


def _for_model(given: Mapping[str, Any], images: Collection[str], path: content.Path) -> dict[str, Any] | None:
    match given.get("type"):
        case "text":
            return {"type": "text", "text": given["text"]}
        case "embeddedResource":
            return content.image_block(given["contentType"], given["data"], images, (*path, "data"))
        case "resource" if (given.get("contentType") or "").startswith("image/") and "http" in images:
            uri = given["uri"]
            return {"type": "image", "url": uri} if content.HTTP_IMAGE.fullmatch(uri) else None
    return None
