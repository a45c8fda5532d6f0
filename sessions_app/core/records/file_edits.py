"""The files that a session's agent changed: each edit, and the sum of all edits of a session.

An edit is ``{uri, before, after, added, removed}``; ``before`` and ``after`` are ``{content, size}`` or null, if there is no
file. ``content`` names a stored content, which may be gone or never have been stored: few contents are kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.interface import FileEdit, FileState
from agents_app.tools.files import differences
from agents_app.tools.files.text import decoded
from sessions_app.core.base import byte_budget
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import ContentNotFound, SessionNotFound
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import api_audit, usage_entries
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import FileVersion, Measure, Session, SessionDiffs
from sessions_app.workspace import paths

MOST_FILES = 100
"""Changed files of a session that are shown: the last ones."""
MOST_DIFFS_BYTES = 32 * 1024
"""Of their JSON: every change of the list is an event with the whole list, and lists of sessions show them."""
MOST_EDITS = 100
"""Edits of one call that are shown."""
MOST_KEPT_OF_FILE = 256 * 1024
MOST_KEPT_OF_SESSION = 8 * 1024 * 1024
"""Bytes of contents that are kept."""
NOT_KEPT = "not-kept"
"""The name of a content that was too large to be read."""
_DIGEST = re.compile(r"[0-9a-f]{64}")

Edit = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """``edits`` of one call; ``diffs``: all changed files of the session with these edits."""

    edits: list[Edit]
    diffs: list[Edit]

    def happening(self) -> Happening:
        return Happening(Kind.DIFFS_CHANGED, {"diffs": self.diffs})

    def statement(self, tenant: int, session: int) -> Statement:
        return Statement(
            "insert into sessions_app_sessiondiffs (tenant_id, session_id, diffs) values (%s, %s, %s)"
            " on conflict (session_id) do update set diffs = excluded.diffs",
            (tenant, session, exact_json.dumps(self.diffs)),
        )


def record(session: int, made: Sequence[FileEdit]) -> Recorded:
    """Store the contents of these edits. The caller stores the result with the call's, one call of a session at a time."""
    made = made[:MOST_EDITS]
    states = [state for edit in made for state in (edit.before, edit.after) if state is not None]
    contents = {_digest(state): state.content for state in states if state.content is not None}
    _keep(session, contents)
    edits = [_edit(each) for each in made]
    diffs = of_sessions([session]).get(session, [])
    for edit in edits:
        diffs = _with(session, diffs, edit, contents)
    return Recorded(edits, diffs)


def previewed(session: int, would_be: Sequence[FileEdit]) -> list[Edit]:
    """Edits that a client is asked to permit, with their contents stored. They leave half of the room to those that are made."""
    states = [state for edit in would_be for state in (edit.before, edit.after) if state is not None]
    contents = {_digest(state): state.content for state in states if state.content is not None}
    _keep(session, contents, share=2)
    return [_edit(each) for each in would_be]


def seen_in(preview: Sequence[Edit]) -> dict[str, str | None]:
    """The files before these edits: the digest of the content by path, None if there was none (``Call.seen``)."""
    found = dict[str, str | None]()
    for edit in preview:
        digest = None if edit["before"] is None else edit["before"]["content"]
        if digest != NOT_KEPT:
            found["/" + "/".join(paths.parse(edit["uri"]))] = digest
    return found


def unified(session: int, edits: Sequence[Edit]) -> str:
    """A unified diff of these edits, as far as their contents are kept."""
    texts, left = list[str](), differences.MOST_SHOWN
    for edit in edits:
        name = "/" + "/".join(paths.parse(edit["uri"]))
        before, after = _text(session, edit["before"], {}), _text(session, edit["after"], {})
        if before is None or after is None:
            texts.append(f"{name}: +{edit['added']} -{edit['removed']} lines; too large to show")
        elif "\0" in before or "\0" in after:
            texts.append(f"{name}: binary")
        else:
            texts.append(differences.unified(differences.compare(before, after), name, most=left))
        left -= len(texts[-1])
        if left <= 0:
            break
    return "\n".join(texts)


def of_sessions(sessions: Collection[int]) -> dict[int, list[Edit]]:
    """The changed files by session, the last changed one last; without sessions that never had any."""
    rows = SessionDiffs.objects.filter(session_id__in=sessions).values_list("session_id", "diffs")
    return {session: exact_json.loads(diffs) for session, diffs in rows}


def content(caller: Caller, session_uri: str, name: str) -> bytes:
    """A stored content of a session. ContentNotFound if there is none for the caller."""
    try:
        session = addresses.find(caller, session_uri)
    except SessionNotFound:
        raise ContentNotFound from None
    found = FileVersion.objects.filter(session=session, digest=name) if _DIGEST.fullmatch(name) else FileVersion.objects.none()
    size = found.values_list("size", flat=True).first()
    if size is None:
        raise ContentNotFound
    byte_budget.reserve(3 * size)
    api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
    data = found.values_list("content", flat=True).first()
    if data is None:
        raise ContentNotFound
    return bytes(data)


def copy(source: Session, target: Session) -> None:
    """Copy the contents into a fork, whose calls refer to them. Called in the fork's transaction."""
    rows = list(FileVersion.objects.filter(session=source))
    for row in rows:
        row.pk, row.session_id = None, target.pk
    FileVersion.objects.bulk_create(rows)


# --- contents ---


def _digest(state: FileState) -> str:
    return state.digest or NOT_KEPT


def _keep(session: int, contents: Mapping[str, bytes], share: int = 1) -> None:
    """Store the contents for which there is room, and count their bytes. ``share``: of the room, 2 is half."""
    wanted = {digest: data for digest, data in contents.items() if len(data) <= MOST_KEPT_OF_FILE}
    if not wanted:
        return
    with transaction.atomic():
        # Its deletion subtracts what is stored, so nothing is stored after that.
        row = Session.objects.select_for_update(no_key=True).filter(pk=session).only("pk", "tenant_id", "created_by_id").first()
        if row is None:
            return
        there = FileVersion.objects.filter(session=row)
        known = set(there.filter(digest__in=wanted).values_list("digest", flat=True))
        room = MOST_KEPT_OF_SESSION // share - (there.aggregate(size=Sum("size"))["size"] or 0)
        new: list[FileVersion] = []
        for digest, data in wanted.items():
            if digest not in known and len(data) <= room:
                room -= len(data)
                new.append(
                    FileVersion(
                        tenant_id=row.tenant_id,
                        session=row,
                        digest=digest,
                        content=data,
                        size=len(data),
                        created_at=timezone.now(),
                    )
                )
        FileVersion.objects.bulk_create(new)
        usage_entries.record(row, Measure.BYTES, sum(each.size for each in new))


# --- edits ---


def _edit(made: FileEdit) -> Edit:
    uri = paths.uri_of(tuple(made.path.split("/")[1:]))
    return {"uri": uri, "before": _side(made.before), "after": _side(made.after), "added": made.added, "removed": made.removed}


def _side(state: FileState | None) -> dict[str, Any] | None:
    return None if state is None else {"content": _digest(state), "size": state.size}


def _with(session: int, diffs: Sequence[Edit], edit: Edit, contents: Mapping[str, bytes]) -> list[Edit]:
    """The changed files after one more edit: from the file before the session's first edit to the file as it is now."""
    earlier = next((each for each in diffs if each["uri"] == edit["uri"]), None)
    others = [each for each in diffs if each is not earlier]
    changed = edit if earlier is None else {**edit, "before": earlier["before"], **_counts(session, earlier, edit, contents)}
    same = changed["before"] == changed["after"] and (changed["before"] or {}).get("content") != NOT_KEPT
    return _last(others if same else [*others, changed])


def _last(diffs: Sequence[Edit]) -> list[Edit]:
    """The last changed files that are within the limits."""
    size, kept = 0, list[Edit]()
    for edit in reversed(diffs[-MOST_FILES:]):
        size += len(exact_json.dumps(edit)) + 1
        if size > MOST_DIFFS_BYTES:
            break
        kept.insert(0, edit)
    return kept


def _counts(session: int, earlier: Edit, edit: Edit, contents: Mapping[str, bytes]) -> dict[str, int]:
    """The lines that differ; the sum of the edits' if one of the contents was not kept."""
    before, after = _text(session, earlier["before"], contents), _text(session, edit["after"], contents)
    if before is None or after is None:
        return {"added": earlier["added"] + edit["added"], "removed": earlier["removed"] + edit["removed"]}
    found = differences.compare(before, after).counts
    return {"added": found.added, "removed": found.removed}


def _text(session: int, side: Mapping[str, Any] | None, contents: Mapping[str, bytes]) -> str | None:
    if side is None:
        return ""
    if (data := contents.get(side["content"])) is not None:
        return decoded(data)
    rows = FileVersion.objects.filter(session_id=session, digest=side["content"])
    kept = rows.values_list("content", flat=True).first()
    return None if kept is None else decoded(bytes(kept))
