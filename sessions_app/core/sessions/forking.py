"""Forking: copies the start of a session's history into a new session, in the transaction that creates it."""

from __future__ import annotations

from agents_app.spec import AgentSpec
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import TurnAlreadyRunning, TurnUnknown
from sessions_app.core.records import file_edits, history, options
from sessions_app.core.sessions import truncating
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.workspaces import making
from sessions_app.models import LIVE_STATES, Measure, Session, Turn


def end_of_copy(source: Session, turn: str) -> tuple[int, int]:
    """The last turn row and message position to copy; the source is locked. TurnAlreadyRunning if the turn is live."""
    end = truncating.end_of(source, turn)
    if end is None:
        if not UNSTORABLE.search(turn) and Turn.objects.filter(session=source, public_id=turn, state__in=LIVE_STATES).exists():
            raise TurnAlreadyRunning(source.public_id)
        raise TurnUnknown
    return end


def copy_history(source: Session, copied: Session, end: tuple[int, int]) -> None:
    """Copy the history up to ``end`` (turn row, message position), and the title."""
    history.copy(source.pk, copied.pk, *end)
    title = Session.objects.values_list("title", flat=True).get(pk=source.pk)
    newest = Turn.objects.filter(session=copied).order_by("-pk").values_list("pk", flat=True).first()
    Session.objects.filter(pk=copied.pk).update(title=title, failures_seen_through=newest or 0)
    file_edits.copy(source, copied)
    usage_entries.record(copied, Measure.BYTES, usage_entries.bytes_of_history(copied) + usage_entries.bytes_of_files(copied))


def options_of(source: Session, spec: AgentSpec) -> dict[str, str]:
    """The source's option values that the agent has, secrets decrypted: they are encrypted again for the copy."""
    known = {option.name for option in spec.options}
    return {name: value for name, value in options.opened(source.tenant_id, source.pk).items() if name in known}


def directory_of(caller: Caller, source: Session) -> tuple[str | None, int | None]:
    """The source's working directory and the row of its workspace. A workspace that is the source's own is not shared."""
    row = Session.objects.only("directory", "workspace").get(pk=source.pk)
    if row.directory is None or row.workspace_id is None:
        return row.directory, None
    return row.directory, making.join_again(caller, row.workspace_id, row.directory)
