"""The ended turns of a session as text for a model, where a message refers to another conversation.

What a turn's message had attached is named and not read: a conversation that refers to others would bring all of them.
"""

from __future__ import annotations

from agents_app.runtime.messages import text_of
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.sessions import state
from sessions_app.core.sessions.state import CallView, TurnView
from sessions_app.models import Session

MOST_TURNS = 100
LONGEST = 256 * 1024
"""Characters of a transcript. Earlier turns are left out."""
_LONGEST_VALUE = 2000
"""Characters of a call's arguments, and of its result."""
_LEFT_OUT = "[Earlier turns are left out]"


def read(caller: Caller, session: Session, last: str | None) -> str:
    """The transcript up to the ended turn ``last``, including it; None: the newest one.

    TurnUnknown if there is no such turn, NotPossible if there is none at all.
    """
    page = state.page(caller, session, last, MOST_TURNS, inclusive=True)
    if not page.turns:
        raise NotPossible("it has no completed turn")
    return _joined(page.turns, older=page.older)


def _joined(turns: list[TurnView], *, older: bool) -> str:
    kept: list[str] = []
    left = LONGEST
    for turn in reversed(turns):
        text = _turn(turn)
        if len(text) > left:
            older = True
            if not kept:
                kept.append(text[-left:])
            break
        kept.append(text)
        left -= len(text)
    return "\n\n".join(([_LEFT_OUT] if older else []) + kept[::-1])


def _turn(turn: TurnView) -> str:
    attached = [f"[Attachment {each['label']}]" for each in turn.attachments or ()]
    if turn.attachments is None and isinstance(turn.content, list):
        attached = ["[Image]" for block in turn.content if block["type"] == "image"]
    lines = [" ".join(["User:", *([turn.text] if turn.text else []), *attached])] if turn.text or attached else []
    for part in turn.parts:
        if part.call is not None:
            lines.append(_call(part.call))
        elif part.kind == "text":
            lines.append(f"Assistant: {part.text}")
    if turn.ending != "complete":
        lines.append("[The turn was cancelled]" if turn.ending == "cancelled" else "[The turn failed]")
    return "\n".join(lines)


def _call(call: CallView) -> str:
    named = f"{call.name}({_cut(call.input)})"
    if call.status == "ended":
        return f"[Call that did not run: {named}]"
    result = "" if call.content is None else _cut(text_of(call.content))
    return f"[Call: {named}]\n[Result: {result}]"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}[{len(text) - _LONGEST_VALUE:,} characters left out]"
