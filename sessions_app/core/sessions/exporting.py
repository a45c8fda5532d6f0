"""Exports of sessions: everything that is stored of one, as records, and as JSON Lines with a digest at the end.

The database part of a session is read in one snapshot, a few rows at a time. Files of its workspace are read after that, as they
are at that moment. Secret options are masked, as everywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any

from django.db.models import Max, Q, QuerySet

from agents_app import exact_json
from sessions_app.core.base import database
from sessions_app.core.base.errors import DomainError, SessionNotFound
from sessions_app.core.log import journal
from sessions_app.core.records import addresses, live_workers
from sessions_app.core.sessions import listing
from sessions_app.core.tenancy import audit
from sessions_app.core.workspaces import places, trees
from sessions_app.models import LIVE_STATES, Compaction, FileVersion, Form, Message, Session, Tenant, ToolCall, Turn, Workspace
from sessions_app.workspace.entries import kind_of
from sessions_app.workspace.errors import FileError, Unsupported
from sessions_app.workspace.reading import open_regular
from sessions_app.workspace.walking import Limits as WalkLimits
from sessions_app.workspace.walking import below

FORMAT = 1
"""Of the records; a reader ignores members and types that it does not know."""
_ROWS = 16
"""Rows in memory at once. A message may have some megabytes."""
_PIECE = 256 * 1024
"""Bytes of a file in one record."""
_MOST_ENTRIES = 10**9

Record = dict[str, Any]


def begin(session: Session, *, actor: str, address: str = "", form: str) -> None:
    """Record in the audit that a session is being exported. ``form``: of the export, for people."""
    tenant = Tenant.objects.get(pk=session.tenant_id)
    audit.record(
        actor=actor,
        action=audit.Action.SESSION_EXPORTED,
        target=f"session {session.public_id}",
        tenant=tenant,
        address=address,
        detail=form,
    )


def begin_tenant(tenant: Tenant, *, actor: str, address: str = "", form: str) -> None:
    """Record in the audit that all sessions of a tenant are being exported."""
    audit.record(
        actor=actor,
        action=audit.Action.TENANT_EXPORTED,
        target=f"tenant {tenant.slug}",
        tenant=tenant,
        address=address,
        detail=form,
    )


def write_lines(session: Session, out: IO[bytes], *, files: bool = True) -> dict[str, int]:
    """Write the records as JSON Lines; returns their numbers by type. The last line has them and the SHA-256 of all before it.

    SessionNotFound if the session was deleted. A file without that last line is incomplete.
    """
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()
    for record in records(session, files=files):
        line = exact_json.dumps(record).encode() + b"\n"
        digest.update(line)
        out.write(line)
        counts[record["type"]] += 1
    out.write(exact_json.dumps({"type": "end", "counts": dict(counts), "sha256": digest.hexdigest()}).encode() + b"\n")
    return dict(counts)


def records(session: Session, *, files: bool = True) -> Iterator[Record]:
    """Everything that is stored of the session, its own record first."""
    with journal.snapshot():
        row = Session.objects.select_related("tenant").filter(pk=session.pk).first()
        if row is None:
            raise SessionNotFound
        at = time_text(live_workers.database_clock())
        yield {"type": "export", "format": FORMAT, "tenant": row.tenant.slug, "at": at, "files": files}
        yield _session(row)
        yield from (_turn(each) for each in _rows(Turn.objects.filter(session=row).prefetch_related("attempts"), "pk"))
        yield from (_message(each) for each in _rows(Message.objects.filter(session=row).select_related("turn"), "position"))
        yield from (_call(each) for each in _rows(ToolCall.objects.filter(session=row).select_related("turn"), "pk"))
        yield from (_form(each) for each in _rows(Form.objects.filter(session=row).select_related("turn"), "pk"))
        yield from (_summary(each) for each in _rows(Compaction.objects.filter(session=row), "covers_through"))
        yield from (_version(each) for each in _rows(FileVersion.objects.filter(session=row), "pk"))
    if files and row.workspace_id is not None:
        yield from _files(row.workspace_id)


def _rows(rows: QuerySet[Any], order: str) -> Iterator[Any]:
    """All rows by a column without duplicates, a few at a time."""
    name, last = ("id" if order == "pk" else order), -1
    while found := list(rows.filter(**{f"{name}__gt": last}).order_by(name)[:_ROWS]):
        yield from found
        last = getattr(found[-1], name)


def _session(row: Session) -> Record:
    facts = listing.facts(row)
    agent: Record = {"name": facts.agent_name}
    if facts.tool_refs is not None:
        agent["tools"] = facts.tool_refs
    if facts.options:
        agent["options"] = facts.options
    return {
        "type": "session",
        "sessionId": facts.public_id,
        "agent": agent,
        "tools": facts.client_tools,
        "title": row.title,
        "uri": addresses.of(row),
        "directory": row.directory,
        "approval": row.approval,
        "archived": row.archived,
        "createdAt": time_text(row.created_at),
        "modifiedAt": time_text(row.modified_at),
    }


def _turn(row: Turn) -> Record:
    return {
        "type": "turn",
        "turn": row.public_id,
        "state": row.state,
        "stopReason": row.stop_reason,
        "error": row.error,
        "steps": row.step,
        "inputTokens": row.input_tokens,
        "outputTokens": row.output_tokens,
        "cacheReadTokens": row.cache_read_tokens,
        "createdAt": time_text(row.created_at),
        "startedAt": time_text(row.started_at),
        "endedAt": time_text(row.ended_at),
        "cutAt": time_text(row.cut_at),
        "failedAttempts": [
            {"error": each.error, "endedAt": time_text(each.ended_at)}
            for each in sorted(row.attempts.all(), key=lambda each: each.number)
        ],
    }


def _message(row: Message) -> Record:
    """``cutAt``: when it was truncated away; it is in no history any more. ``supersededAt``: since when models do not get it,
    because the failed attempt that left it unfinished was followed by another.
    """
    found: Record = {"type": "message", "position": row.position, "role": row.role}
    if row.tool_call_id is not None:
        found["toolCallId"] = row.tool_call_id
    found["content"] = exact_json.loads(row.content)
    turn = None if row.turn is None else row.turn.public_id
    times = {"createdAt": row.created_at, "cutAt": row.cut_at, "supersededAt": row.superseded_at}
    return {**found, "origin": row.origin, "turn": turn, **{name: time_text(at) for name, at in times.items()}}


def _call(row: ToolCall) -> Record:
    return {
        "type": "tool_call",
        "toolCallId": row.call_id,
        "turn": None if row.turn is None else row.turn.public_id,
        "name": row.name,
        "arguments": row.arguments,
        "runner": row.runner,
        "state": row.state,
        "failed": row.failed,
        "decidedBy": row.decided_by,
        "reason": row.reason,
        "decidedAt": time_text(row.decided_at),
        "startedAt": time_text(row.started_at),
        "finishedAt": time_text(row.finished_at),
        "result": _parsed(row.result),
        "edits": _parsed(row.edits),
    }


def _form(row: Form) -> Record:
    return {
        "type": "form",
        "form": row.form_id,
        "turn": row.turn.public_id,
        "toolCallId": row.call_id,
        "document": _parsed(row.document),
        "answers": _parsed(row.answers),
        "response": row.response,
        "createdAt": time_text(row.created_at),
        "closedAt": time_text(row.closed_at),
    }


def _summary(row: Compaction) -> Record:
    return {
        "type": "summary",
        "coversThrough": row.covers_through,
        "summary": row.summary,
        "createdAt": time_text(row.created_at),
    }


def _version(row: FileVersion) -> Record:
    """The content of a file before or after an edit, to which ``edits`` of tool calls refer by its digest."""
    content = base64.b64encode(bytes(row.content)).decode()
    return {"type": "file_version", "sha256": row.digest, "content": content, "createdAt": time_text(row.created_at)}


def _files(workspace_id: int) -> Iterator[Record]:
    """The files of the session's workspace, in pieces. A workspace that cannot be read is a record that says so."""
    workspace = Workspace.objects.filter(pk=workspace_id, removed_at=None).first()
    if workspace is None:
        return
    yield {"type": "workspace", "root": workspace.root, "private": workspace.private}
    try:
        yield from _tree(places.of_row(workspace, ()))
    except (FileError, DomainError, OSError) as error:
        yield {"type": "workspace_unreadable", "root": workspace.root, "reason": type(error).__name__}


def _tree(place: places.Place) -> Iterator[Record]:
    tree = trees.tree_of(place)
    if not tree.exists():
        return
    with tree.open() as at, at.directory(()) as directory:
        for found in below(directory, (), WalkLimits(_MOST_ENTRIES)):
            if kind_of(found.status.st_mode) != "file":
                continue
            try:
                path, descriptor = "/".join(name.decode() for name in found.names), open_regular(found.place)
            except (OSError, Unsupported, UnicodeDecodeError):
                # Removed or replaced after it was found, or a name that is not valid Unicode.
                continue
            try:
                yield from _pieces(path, descriptor, executable=bool(found.status.st_mode & 0o100))
            finally:
                os.close(descriptor)


def _pieces(path: str, descriptor: int, *, executable: bool) -> Iterator[Record]:
    """``last`` marks the last piece, which has the digest of the whole file."""
    digest, offset = hashlib.sha256(), 0
    while True:
        data = os.pread(descriptor, _PIECE, offset)
        digest.update(data)
        record: Record = {"type": "file", "path": path, "offset": offset, "content": base64.b64encode(data).decode()}
        offset += len(data)
        if len(data) < _PIECE:
            yield {**record, "last": True, "size": offset, "sha256": digest.hexdigest(), "executable": executable}
            return
        yield record


def _parsed(text: str | None) -> Any:
    return None if text is None else exact_json.loads(text)


def time_text(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_current(session: Session, lines: IO[bytes], *, files: bool) -> bool:
    """Whether these JSON Lines, of an earlier export, are still true of the session. Not known of files, so False with any."""
    try:
        export, then = json.loads(lines.readline()), json.loads(lines.readline())
        at = datetime.fromisoformat(export["at"])
        is_same = export["files"] is files and then["modifiedAt"] == time_text(session.modified_at)
    except (ValueError, KeyError, TypeError):
        return False
    if not is_same or (files and session.workspace_id is not None):
        return False
    return not Turn.objects.filter(Q(state__in=LIVE_STATES) | Q(ended_at__gte=at), session=session).exists()


def index_line(session: Session) -> bytes:
    """The session's line in the index of a tenant's export."""
    name = f"{session.public_id}.jsonl"
    line = {"sessionId": session.public_id, "title": session.title, "agent": session.agent_name, "file": name}
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def sessions_of(tenant: Tenant, since: datetime | None = None, until: datetime | None = None) -> Iterator[Session]:
    """The sessions that the tenant has now, the oldest first; with times, those created from ``since`` and before ``until``.

    The connection is given back between two batches.
    """
    rows = Session.objects.filter(tenant=tenant)
    if since is not None:
        rows = rows.filter(created_at__gte=since)
    if until is not None:
        rows = rows.filter(created_at__lt=until)
    last: int = 0
    newest: int = rows.aggregate(newest=Max("pk"))["newest"] or 0
    while found := list(rows.filter(pk__gt=last, pk__lte=newest).order_by("pk")[:200]):
        last = found[-1].pk
        database.release()
        yield from found
