"""The description of AAP version 3's endpoints, for its OpenAPI document.

Loaded for the documentation only. Older versions derive their descriptions from this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from agents_app.spec import HistoryKind
from sessions_app.aap import headers, stream
from sessions_app.aap.openapi import refusals
from sessions_app.aap.openapi.description import EVENTS, JSON, Answer, Description, Operation, Parameter
from sessions_app.aap.versions import v3, v3_examples, v3_types
from sessions_app.core.base import errors
from sessions_app.core.base.content import whole
from sessions_app.core.base.shapes import Rule

# --- parameters ---

SESSION_ID = Parameter("session_id", "path", v3_types.SessionId, required=True)
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    Annotated[str, Rule(pattern=whole(headers.VISIBLE.pattern))],
    "Any string of your own. The same key with the same body within 24 hours joins the first request: nothing runs twice, "
    "and the answer is the first one's. With another body it is refused.",
)
TURN_DEADLINE = Parameter(
    "X-Turn-Deadline",
    "header",
    Annotated[str, Rule(pattern=f"^(?=.*[1-9])(?:{headers.SECONDS.pattern})$")],
    "Seconds after which the turn is cancelled; it then ends with `error`. Waiting for the client does not count.",
)
_AFTER = Parameter("after", "query", str, "The `next` of the page before.")
_HISTORY_TYPE = Parameter(
    "type",
    "query",
    HistoryKind,
    "`full`: every message as it was sent. `compacted`: the messages that the model would get.",
    required=True,
)
_JOINING = (
    Parameter("stream", "query", stream.Mode, required=True),
    Parameter(
        "Last-Event-ID",
        "header",
        str,
        "The `id` of the last event received. All events after it follow, stored events first, then live ones.",
    ),
    Parameter("after", "query", str, "The same, where a header cannot be set."),
    Parameter(
        "follow",
        "query",
        Annotated[Literal["false", "true"], Rule(default="false")],
        "Stay for later turns; without it the stream ends with the turn in progress.",
    ),
)

# --- operations ---

GROUPS = {
    "Agents": "The agents of this server.",
    "Sessions": "Conversations with an agent, stored by the server.",
    "Turns": "Making the agent run, and following its work.",
}
SESSION_GONE = refusals.of(errors.SessionNotFound)
QUOTA = refusals.of(errors.QuotaExceeded)
KEY_REUSED = refusals.of(errors.IdempotencyKeyReused)
BAD_HEADER = refusals.raised_by(
    "bad_header",
    "The header Idempotency-Key or X-Turn-Deadline is not valid.",
    lambda: headers.deadline(refusals.request_with("X-Turn-Deadline", "soon")),
)


def _query(name: str, check: Callable[[], object]) -> refusals.Refusal:
    return refusals.raised_by("bad_query", f"The query `{name}` is missing or not valid.", check)


def _turn_answers() -> dict[int, Answer]:
    return {
        200: Answer(
            "The turn's events while they happen, or with `stream` `none` one object when it is over. "
            "A failure after the turn has begun is the stop reason `error`, not a status.",
            {JSON: v3_types.TurnAnswer, EVENTS: v3_types.Event},
            ("X-Turn-Id", "RateLimit?", "RateLimit-Policy?"),
        )
    }


def turn_refusals() -> tuple[refusals.Refusal, ...]:
    return (
        BAD_HEADER,
        SESSION_GONE,
        refusals.of(errors.TurnAlreadyRunning),
        refusals.of(errors.PositionPruned),
        KEY_REUSED,
        refusals.of(errors.AgentGone),
        refusals.of(errors.SessionFull),
        QUOTA,
    )


def _operations() -> dict[tuple[str, str], Operation]:
    return {
        ("GET", "/meta"): Operation(
            "getMeta",
            "Agents",
            "List agents",
            "The agents that this key may use, with their tools, options and capabilities.",
            {200: Answer("The agents.", {JSON: v3_types.Meta})},
            examples=v3_examples.META,
        ),
        ("GET", "/sessions"): Operation(
            "listSessions",
            "Sessions",
            "List sessions",
            "The tenant's sessions of all agents that this key may use, newest first. A walk over the pages shows every session "
            "that exists during the whole of it exactly once.",
            {200: Answer("A page.", {JSON: v3_types.SessionList})},
            (refusals.of(errors.BadCursor),),
            (_AFTER,),
            examples=v3_examples.LIST,
        ),
        ("POST", "/sessions"): Operation(
            "createSession",
            "Sessions",
            "Create a session",
            "Nothing runs yet. Options that are left out have the agent's defaults; tools of the server are disabled unless "
            "they are named.",
            {201: Answer("The session exists.", {JSON: v3_types.SessionCreated}, ("Location",))},
            (BAD_HEADER, refusals.of(errors.TokenLimited), KEY_REUSED, QUOTA),
            (IDEMPOTENCY_KEY,),
            v3_types.NewSession,
            examples=v3_examples.CREATE,
        ),
        ("GET", "/sessions/{session_id}"): Operation(
            "getSession",
            "Sessions",
            "Read a session's settings",
            "Its agent, options and tools as set so far. Its messages are in its history.",
            {200: Answer("The session.", {JSON: v3_types.Session})},
            (SESSION_GONE,),
            (SESSION_ID,),
            examples=v3_examples.READ,
        ),
        ("DELETE", "/sessions/{session_id}"): Operation(
            "deleteSession",
            "Sessions",
            "Delete a session",
            "At once and with its history. A turn in progress is stopped.",
            {204: Answer("The session is deleted.")},
            (SESSION_GONE,),
            (SESSION_ID,),
            examples=v3_examples.DELETE,
        ),
        ("GET", "/sessions/{session_id}/history"): Operation(
            "getHistory",
            "Sessions",
            "Read a session's messages",
            "Oldest first. While a turn runs, its finished steps are there. Calls without a tool message are open, so "
            "a client that lost its state can continue from here.",
            {200: Answer("The messages.", {JSON: v3_types.History})},
            (SESSION_GONE, refusals.of(errors.HistoryKindUndeclared), _query("type", lambda: v3.history_kind({}))),
            (SESSION_ID, _HISTORY_TYPE),
            examples=v3_examples.HISTORY,
        ),
        ("POST", "/sessions/{session_id}/turns"): Operation(
            "sendTurn",
            "Turns",
            "Send a turn",
            "Sends the user's message to the agent, or answers the tool calls that it waits for, and makes it run. A session "
            "runs one turn at a time. The turn continues when the client disconnects; its stream can be joined again.",
            _turn_answers(),
            turn_refusals(),
            (SESSION_ID, IDEMPOTENCY_KEY, TURN_DEADLINE),
            v3_types.TurnRequest,
            examples=v3_examples.TURNS,
        ),
        ("GET", "/sessions/{session_id}/events/stream"): Operation(
            "joinStream",
            "Turns",
            "Join a session's stream",
            "The same events as the turn's own stream, for any number of readers. With a position: everything after it. Without "
            "one: the turn in progress from its start. Not part of the protocol; this server adds it.",
            {
                200: Answer("The events.", {EVENTS: v3_types.Event}),
                204: Answer("Nothing is running, and there are no events after the position."),
            },
            (
                SESSION_GONE,
                _query("stream", lambda: v3.joining_mode({}, None)),
                refusals.of(errors.UnknownPosition),
                refusals.of(errors.PositionPruned),
                refusals.raised_by(
                    "undeclared_mode", "The agent does not offer this mode.", lambda: v3.joining_mode({"stream": "none"}, None)
                ),
                QUOTA,
            ),
            (SESSION_ID, *_JOINING),
            examples=v3_examples.JOIN,
        ),
        ("POST", "/sessions/{session_id}/cancel"): Operation(
            "cancelTurn",
            "Turns",
            "Stop the turn in progress",
            "The call to the model's provider is closed and running tools are stopped; the text so far stays in the history, and "
            "the turn's stream ends with `end_turn`. A turn that waits for the client can be stopped too. Not part of the "
            "protocol; this server adds it.",
            {200: Answer("The turn was stopped, or nothing was in progress.", {JSON: v3_types.Cancelled})},
            (SESSION_GONE,),
            (SESSION_ID,),
            v3_types.CancelRequest,
            body_required=False,
            examples=v3_examples.CANCEL,
        ),
    }


_TEXT = """\
Talk to agents that this server hosts. Create a session, send turns, follow the agent's work, answer its calls.

Every request carries a key: `Authorization: Bearer KEY`. Every answer carries `X-Request-Id` (yours, if you sent a plain
one), and every error is a problem document that repeats it. Unknown members of a body are ignored; `null` for an optional
member counts as absent. `HEAD` works wherever `GET` does. A body where none is needed
counts towards the size limits and is not read.
"""


def description() -> Description:
    return Description(
        version=v3.VERSION,
        text=_TEXT,
        groups=GROUPS,
        operations=_operations(),
    )
