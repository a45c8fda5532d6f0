"""The kinds of events, and an event before it is stored. Pure.

docs/protocols/events.md documents each kind's payload and its form in each protocol. A reader skips unknown kinds, so a
newer release may run beside this one. Ids in a payload are public ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from agents_app import exact_json


class Kind(StrEnum):
    SESSION_CREATED = "session_created"
    SESSION_DELETED = "session_deleted"
    ACTIVE_SESSIONS_CHANGED = "active_sessions_changed"
    AGENTS_CHANGED = "agents_changed"
    TITLE_CHANGED = "title_changed"
    READ_CHANGED = "read_changed"
    ARCHIVED_CHANGED = "archived_changed"
    CHAT_READ_CHANGED = "chat_read_changed"
    DRAFT_CHANGED = "draft_changed"
    MODEL_CHANGED = "model_changed"
    SETTINGS_CHANGED = "settings_changed"
    SERVER_TOOLS_CHANGED = "server_tools_changed"
    CUSTOMIZATIONS_CHANGED = "customizations_changed"
    CUSTOMIZATION_TOGGLED = "customization_toggled"
    ACTIVITY_CHANGED = "activity_changed"
    DIFFS_CHANGED = "diffs_changed"
    HISTORY_CUT = "history_cut"
    CLIENT_JOINED = "client_joined"
    CLIENT_LEFT = "client_left"
    CLIENT_TOOLS_CHANGED = "client_tools_changed"
    MESSAGE_PENDING = "message_pending"
    MESSAGE_NOT_PENDING = "message_not_pending"
    MESSAGES_REORDERED = "messages_reordered"
    TURN_STEERED = "turn_steered"
    FORM_OPENED = "form_opened"
    FORM_ANSWER_CHANGED = "form_answer_changed"
    FORM_CLOSED = "form_closed"
    DISPATCH_REFUSED = "dispatch_refused"
    TURN_STARTED = "turn_started"
    TURN_RESUMED = "turn_resumed"
    TURN_REOPENED = "turn_reopened"
    RUN_STARTED = "run_started"
    STEP_STARTED = "step_started"
    TEXT_OPENED = "text_opened"
    THINKING_OPENED = "thinking_opened"
    TEXT_DELTA = "text_delta"
    THINKING_DELTA = "thinking_delta"
    CALL_OPENED = "call_opened"
    CALL_ARGUMENTS = "call_arguments"
    THINKING_DONE = "thinking_done"
    TEXT_DONE = "text_done"
    CALL_READY = "call_ready"
    STEP_DONE = "step_done"
    CALL_GRANTED = "call_granted"
    CALL_RUNNING = "call_running"
    CALL_DENIED = "call_denied"
    CALL_FINISHED = "call_finished"
    CALL_STORED = "call_stored"
    CALL_CONTENT_CHANGED = "call_content_changed"
    CALL_RESULT_CONFIRMED = "call_result_confirmed"
    RUN_RELEASED = "run_released"
    RUN_PAUSED = "run_paused"
    TURN_ENDED = "turn_ended"
    TURN_FAILED = "turn_failed"
    TURN_CANCELLED = "turn_cancelled"
    TERMINALS_CHANGED = "terminals_changed"
    TERMINAL_CREATED = "terminal_created"
    TERMINAL_DATA = "terminal_data"
    TERMINAL_INPUT = "terminal_input"
    TERMINAL_RESIZED = "terminal_resized"
    TERMINAL_CLAIMED = "terminal_claimed"
    TERMINAL_TITLE_CHANGED = "terminal_title_changed"
    TERMINAL_CWD_CHANGED = "terminal_cwd_changed"
    TERMINAL_CLEARED = "terminal_cleared"
    TERMINAL_COMMANDS_AVAILABLE = "terminal_commands_available"
    TERMINAL_COMMAND_STARTED = "terminal_command_started"
    TERMINAL_COMMAND_ENDED = "terminal_command_ended"
    TERMINAL_EXITED = "terminal_exited"
    TERMINAL_DISPOSED = "terminal_disposed"
    FILES_CHANGED = "files_changed"
    READ_CLEARED = "read_cleared"
    CHAT_ARCHIVED_CHANGED = "chat_archived_changed"
    ATTENTION_OPENED = "attention_opened"
    ATTENTION_CLOSED = "attention_closed"
    CONVERSATION_CHANGED = "conversation_changed"
    NEW_FAMILIES_FROM = "new_families_from"


STREAM_KINDS = frozenset(
    {
        Kind.STEP_STARTED,
        Kind.TEXT_OPENED,
        Kind.THINKING_OPENED,
        Kind.TEXT_DELTA,
        Kind.THINKING_DELTA,
        Kind.CALL_OPENED,
        Kind.CALL_ARGUMENTS,
        Kind.TERMINAL_DATA,
        Kind.TERMINAL_INPUT,
        Kind.FILES_CHANGED,
    }
)
"""Sent while a model's or a terminal's output streams, or files change: stored without waiting for the disk, kept for a day."""

TEXT_KINDS = STREAM_KINDS - {Kind.TERMINAL_INPUT}
"""Stream events whose payloads have only texts and small numbers, and no origin: a faster codec keeps them exact."""

RUN_START_KINDS = frozenset({Kind.TURN_STARTED, Kind.TURN_RESUMED})


# Made for every delta, so not frozen: frozen dataclasses take twice as long to create.
@dataclass(slots=True)
class Happening:
    """An event before it is stored and numbered.

    ``join`` names the part that a delta belongs to. Neighbouring deltas of the same kind and part are stored as one event,
    their ``delta`` texts joined (journal.layout).
    """

    kind: Kind
    payload: dict[str, Any]
    join: str | None = None

    @property
    def durable(self) -> bool:
        return self.kind not in STREAM_KINDS

    def continues(self, before: Happening) -> bool:
        """Whether this and the event before it are deltas of the same part, to be stored as one event."""
        return self.join is not None and self.join == before.join and self.kind is before.kind

    def joined(self, texts: Sequence[str]) -> Happening:
        """One event with the joined texts of several deltas, of which this is the first."""
        return Happening(self.kind, {**self.payload, "delta": "".join(texts)}, self.join)

    def data(self) -> str:
        if self.kind not in TEXT_KINDS:
            return exact_json.dumps(self.payload)
        # Called for every token.
        try:
            return orjson.dumps(self.payload).decode()
        except orjson.JSONEncodeError:
            # orjson refuses a lone surrogate; this codec keeps it.
            return exact_json.dumps(self.payload)
