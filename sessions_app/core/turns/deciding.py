"""What clients that watch a session do about one call: confirm it, complete it, show how far it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agents_app import exact_json, registry
from agents_app.runtime.messages import Content
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import clients, dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.turns import call_options
from sessions_app.core.turns.answering import Answering, answering
from sessions_app.core.turns.values import ClientResult, Permission
from sessions_app.models import CallRunner, CallState, Session, ToolCall

UNKNOWN_HERE = "Tool execution failed: the client does not know this tool"


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


def confirm(caller: Caller, session: Session, turn: str, call: str, decision: Decision, *, dispatched: Dispatched | None) -> None:
    """Let a call that asks run, or deny it. Of two clients at once the first is heard."""
    with answering(caller, session, dispatched) as open_calls:
        row = open_calls.find(turn, call)
        if row.state != CallState.PENDING or row.runner != CallRunner.SERVER:
            raise NotPossible("this call does not wait for a confirmation")
        if decision.option is not None:
            kind = call_options.kind_of(decision.option)
            if kind is None:
                raise NotPossible("the call offers no such option")
            if (kind == "approve") is not decision.approved:
                raise NotPossible("the option says something else than the decision")
        _check_storable([decision.input, decision.reason, decision.suggestion, decision.shown_reason])
        word = Permission(
            0,
            call,
            decision.approved,
            reason=decision.reason,
            option=decision.option or "",
            arguments=decision.input,
            how=decision.how,
            suggestion=decision.suggestion,
            why=decision.why,
            shown_reason=decision.shown_reason,
        )
        open_calls.answer([word], dispatched)
        if decision.option == call_options.SESSION:
            _trust(open_calls, row)


def _check_storable(value: Any) -> None:
    if faults := content.unstorable(value, ("action",)):
        raise InvalidInput(faults)


def _trust(open_calls: Answering, row: ToolCall) -> None:
    """From now on the tool need not ask in this session, in either protocol."""
    session = open_calls.session
    refs: list[dict[str, Any]] = exact_json.loads(session.tool_refs or "[]")
    trusted = [{**ref, "trust": True} if ref["name"] == row.name else ref for ref in refs]
    if trusted != refs:
        Session.objects.filter(pk=session.pk).update(tool_refs=exact_json.dumps(trusted))
        clients.draw_attention(session.pk)


def complete(
    caller: Caller,
    session: Session,
    turn: str,
    call: str,
    outcome: Outcome,
    *,
    reviewed: bool = False,
    dispatched: Dispatched,
) -> None:
    """The result of a tool that the dispatching client has brought. ``reviewed``: it waits until a client releases it."""
    with answering(caller, session, dispatched) as open_calls:
        _own(open_calls, turn, call, dispatched)
        _check_storable(outcome.document())
        spec = registry.find(session.agent_name)
        said = outcome.for_model(() if spec is None else spec.images)
        result = ClientResult(0, call, said, failed=not outcome.success, outcome=outcome.document(), reviewed=reviewed)
        open_calls.answer([result], dispatched)


def _own(open_calls: Answering, turn: str, call: str, dispatched: Dispatched) -> ToolCall:
    row = open_calls.find(turn, call)
    if row.client is None:
        raise NotPossible("this is no call of a client's tool")
    if row.client != dispatched.client:
        raise NotPossible("this call is another client's")
    if row.state != CallState.PENDING:
        raise NotPossible("this call is not running")
    return row


def fail_unknown(caller: Caller, session: Session, turn: str, call: str, *, reason: str, dispatched: Dispatched) -> None:
    """A client denies a call of its own that runs already: the action is refused, and the call fails (R187)."""
    with answering(caller, session, dispatched) as open_calls:
        _own(open_calls, turn, call, dispatched)
        open_calls.tx.append(dispatches.refusal(caller, dispatched, reason))
        message = UNKNOWN_HERE.partition(": ")[2]
        outcome = {"success": False, "message": message, "error": {"message": message}}
        open_calls.answer([ClientResult(0, call, UNKNOWN_HERE, failed=True, outcome=outcome)])


def show_content(
    caller: Caller, session: Session, turn: str, call: str, shown: list[dict[str, Any]], *, dispatched: Dispatched
) -> None:
    """What a client shows of a call of its own while it works on it."""
    with answering(caller, session, dispatched) as open_calls:
        row = _own(open_calls, turn, call, dispatched)
        _check_storable(shown)
        ToolCall.objects.filter(pk=row.pk).update(shown=exact_json.dumps(shown))
        happening = Happening(Kind.CALL_CONTENT_CHANGED, {"turn": turn, "call": call, "content": shown})
        open_calls.append([dispatches.told(happening, dispatched)])


def confirm_result(
    caller: Caller, session: Session, turn: str, call: str, *, approved: bool, dispatched: Dispatched | None
) -> None:
    """Whether the model gets a result that was held back."""
    with answering(caller, session, dispatched) as open_calls:
        if open_calls.find(turn, call).state != CallState.REVIEW:
            raise NotPossible("no result of this call waits for a confirmation")
        open_calls.answer([Permission(0, call, approved)], dispatched)
