"""Arguments and results of the functions that change turns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agents_app import exact_json
from agents_app.runtime.loop import INTERRUPTED
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec
from sessions_app.core.base import content
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.records import history
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import agents, quotas
from sessions_app.models import TurnState


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted request to run a turn. ``start``: the number of the event that started this run.

    ``repeated``: an earlier request with the same idempotency key was accepted. Its events may be pruned; ``start`` is 0
    then. ``standings``: the caller's rates after this request.
    """

    turn_id: int
    public_id: str
    run: int
    start: int
    repeated: bool = False
    standings: tuple[quotas.RateStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnModel:
    """The model that clients are shown with a turn's message; None: none. ``named``: by the message, so the turn uses it."""

    id: str | None
    named: bool = False

    @staticmethod
    def of(spec: AgentSpec, stored: Mapping[str, str], message: UserMessage | None = None) -> TurnModel:
        """The one that the message names, if the agent has it; else that of the session with these options."""
        if message is not None and message.model is not None and message.model["id"] in agents.models(spec):
            return TurnModel(message.model["id"], named=agents.has_models(spec))
        return TurnModel(agents.model_in_force(spec, stored))


NO_MODEL = TurnModel(None)


@dataclass(frozen=True, slots=True)
class ClientResult:
    """A client's result of a call. ``index``: its index in the request, for faults.

    ``reviewed``: the model gets it only after a client has released it.
    """

    index: int
    call_id: str
    content: Content = field(repr=False)
    failed: bool = False
    outcome: dict[str, Any] | None = field(default=None, repr=False)
    """The result in the client's own form, for other clients."""
    form: FormEnd | None = None
    reviewed: bool = False


@dataclass(frozen=True, slots=True)
class FormEnd:
    """How the form of a call was closed. ``answers`` None: the stored ones."""

    response: Literal["accept", "decline", "cancel"]
    answers: dict[str, Any] | None = field(default=None, repr=False)
    dispatched: Dispatched | None = None


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a server tool may run, or whether its result may be used. ``arguments``: replace the call's."""

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
    def details(self) -> dict[str, Any] | None:
        """What other clients are shown of a denial in addition to its text."""
        members = {"suggestion": self.suggestion, "reason": self.shown_reason}
        return {name: value for name, value in members.items() if value is not None} or None

    @property
    def reason_for_model(self) -> str:
        """The reason of a denial with the client's suggestion, as the model gets it."""
        suggested = (self.suggestion or {}).get("text", "")
        return " ".join(each for each in (self.reason, suggested and f"The user suggests: {suggested}") if each)


Answer = ClientResult | Permission


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """``provider_closed``: the call to the provider is closed, or there was none."""

    cancelled: bool
    provider_closed: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a turn is stopped from outside its run, and the reason that its stream ends with. ``failure``: facts for operators."""

    cause: Literal["client", "cut", "deadline", "deleted", "suspended", "revoked", "limit", "interrupted", "internal"]
    reason: Literal["end_turn", "error"]
    failure: Mapping[str, Any] | None = None

    @property
    def state(self) -> TurnState:
        return TurnState.ERROR if self.cause in ("limit", "interrupted", "internal") else TurnState.CANCELLED

    @property
    def result_of_running_calls(self) -> str:
        """The result of calls that were running. After a cancel the user knows about the interruption; else the text names it."""
        return history.CANCELLED if self.state is TurnState.CANCELLED else INTERRUPTED


@dataclass(frozen=True, slots=True)
class Stopped:
    """A turn that was stopped. ``worker``: the worker that was running it; empty: none was."""

    turn_id: int
    worker: str


@dataclass(frozen=True, slots=True)
class ActiveClient:
    """The session's active client and its tools."""

    id: str
    tools: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A turn that a worker has claimed: its writes are valid while the turn's fence is ``fence``."""

    turn_id: int
    tenant: int
    session: int
    fence: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A user's decision about a call that asks for permission. ``input``: JSON text that replaces its arguments."""

    approved: bool
    option: str | None = None
    input: str | None = field(default=None, repr=False)
    how: Literal["denied", "skipped"] = "denied"
    reason: str = ""
    suggestion: dict[str, Any] | None = field(default=None, repr=False)
    why: Literal["not-needed", "user-action", "setting"] = "user-action"
    """Why it was approved, as the client reports it."""
    shown_reason: Any = None
    """The reason in the client's own form, if that is more than ``reason``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A client tool's result in the client's form. ``content``: the client's blocks; ``error``: members message, code?."""

    success: bool
    message: Any
    content: list[dict[str, Any]] | None = field(default=None, repr=False)
    structured: dict[str, Any] | None = field(default=None, repr=False)
    error: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        members = {"content": self.content, "structured": self.structured, "error": self.error}
        present = {name: value for name, value in members.items() if value is not None}
        return {"success": self.success, "message": self.message, **present}

    def for_model(self, images: Collection[str]) -> Content:
        """The client's text and images, else the structured content, else the error.

        ``images``: the sources of images that the agent accepts. InvalidInput for an image that cannot be read.
        """
        blocks = [
            block
            for index, block_of_client in enumerate(self.content or [])
            if (block := _for_model(block_of_client, images, ("result", "content", index))) is not None
        ]
        if len(blocks) == 1 and blocks[0]["type"] == "text":
            return str(blocks[0]["text"])
        if blocks:
            return blocks
        if self.structured is not None:
            return exact_json.dumps(self.structured)
        return "" if self.error is None else f"Tool execution failed: {self.error.get('message', '')}"


def _for_model(block: Mapping[str, Any], images: Collection[str], path: content.Path) -> dict[str, Any] | None:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": block["text"]}
        case "embeddedResource":
            return content.image_block(block["contentType"], block["data"], images, (*path, "data"))
        case "resource" if (block.get("contentType") or "").startswith("image/") and "http" in images:
            uri = block["uri"]
            return {"type": "image", "url": uri} if content.HTTP_IMAGE.fullmatch(uri) else None
    return None
