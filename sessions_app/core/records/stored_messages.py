"""Reads stored messages: as models get them, and as the AAP history shows them. Writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agents_app import compaction, exact_json, registry
from agents_app import options as agent_options
from agents_app.runtime.messages import Message, calls_of
from sessions_app import models
from sessions_app.core.base import raw_sql
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import options, session_settings
from sessions_app.models import Origin, Session, Turn


@dataclass(frozen=True, slots=True)
class Line:
    """A message as histories show it. ``content`` is JSON text."""

    role: str
    content: str
    tool_call_id: str | None


# Three parts, so that rows that are not needed are not read: the messages behind the newest compaction, the system
# messages before it, and its summary. CROSS JOIN fixes SQLite's join order; sorting in Python keeps that order cheap.
_FOR_MODEL = """
with c as (select session_id, max(covers_through) as through from sessions_app_compaction where session_id {among}
 group by session_id)
select m.session_id, m.role, m.content, m.tool_call_id, m.provider_data, m.turn_id, m.step, m.position, c.through, 0
from sessions_app_session s left join c on c.session_id = s.id cross join sessions_app_message m
where s.id {among} and m.session_id = s.id and m.position > coalesce(c.through, 0) and m.cut_at is null
 and m.superseded_at is null
union all
select m.session_id, m.role, m.content, m.tool_call_id, m.provider_data, m.turn_id, m.step, m.position, c.through, 0
from c cross join sessions_app_message m
where m.session_id = c.session_id and m.position <= c.through and m.role = 'system' and m.cut_at is null
union all
select k.session_id, 'user', k.summary, null, null, null, 0, k.covers_through, c.through, 1
from c cross join sessions_app_compaction k
where k.session_id = c.session_id and k.covers_through = c.through and k.summary is not null
"""
_POSITION, _THROUGH, _IS_SUMMARY = 7, 8, 9
_TYPES = ("bigint", "text", "text", "text", "text", "bigint", "bigint", "bigint", "bigint", "bigint")


def for_models(sessions: Sequence[int]) -> dict[int, list[Message]]:
    """By session: the messages behind its newest compaction, every system message, and the compaction's summary."""
    query = query_for_models(sessions)
    return parse_for_models(sessions, raw_sql.rows(query.sql, query.params))


def query_for_models(sessions: Sequence[int]) -> Statement:
    """The query alone, for callers that send several in one round trip."""
    return Statement(_FOR_MODEL, [list(sessions), list(sessions)], types=_TYPES)


def parse_for_models(sessions: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> dict[int, list[Message]]:
    """The messages in the rows that ``query_for_models`` returned."""
    found: dict[int, list[Message]] = {session: [] for session in sessions}
    compacted = set()
    in_order = sorted(rows, key=lambda row: (row[_POSITION], row[_IS_SUMMARY]))
    for session, role, text, call, provider_data, turn, step, position, through, is_summary in in_order:
        content = text if is_summary else exact_json.loads(text)
        found[session].append(Message(role, content, call, provider_data, turn, step, position, bool(is_summary)))
        if through is not None:
            compacted.add(session)
    for session in compacted:
        # A result may be far behind its call; the two are left out together (A38).
        called = {block["toolCallId"] for message in found[session] for block in calls_of(message)}
        found[session] = [each for each in found[session] if each.role != "tool" or each.tool_call_id in called]
    return found


@dataclass(frozen=True, slots=True)
class AfterCompaction:
    """``through``: the last position that the newest compaction covers; ``positions``: those of the messages behind it."""

    through: int
    positions: list[int]


def after_compaction(rows: Sequence[tuple[Any, ...]]) -> AfterCompaction:
    """Of the rows that ``query_for_models`` returned for one session."""
    through = max((row[_THROUGH] or 0 for row in rows), default=0)
    return AfterCompaction(through, [row[_POSITION] for row in rows if row[_POSITION] > through])


def read(session: Session, kind: Literal["full", "compacted"]) -> list[Line]:
    """The full history, or the messages that the model would get now (A37, A38)."""
    if kind == "full":
        rows = models.Message.objects.filter(session=session, cut_at=None).order_by("position")
        return [Line(*row) for row in rows.values_list("role", "content", "tool_call_id")]
    messages = for_models([session.pk])[session.pk]
    spec = registry.find(session.agent_name)
    if spec is not None and spec.context_tokens is not None:
        live = Turn.objects.filter(session=session, state__in=models.LIVE_STATES).values_list("pk", flat=True).first()
        values = agent_options.effective(spec, options.shown([session.pk]).get(session.pk, {}))
        decided = session_settings.settings_of(session)
        schemas = [tool.schema for tool in spec.tools if not tool.expose or tool.name in decided.enabled]
        schemas += decided.client_schemas()
        try:
            compact = compaction.compact(
                messages, agent_options.fill(spec.instructions, values), schemas, spec.context_tokens, live
            )
        except compaction.TooLong as error:
            messages = list(error.messages)
        else:
            messages = list(compact.messages)
    return [Line(line.role, exact_json.dumps(line.content), line.tool_call_id) for line in messages]


def digest(session: int) -> bytes:
    """A SHA-256 over the id of a session, deleted or not, and its messages, in order; a few messages are in memory at once."""
    public_id = Session.with_deleted.values_list("public_id", flat=True).get(pk=session)
    found, last = hashlib.sha256(public_id.encode()).digest(), -1
    rows = models.Message.objects.filter(session_id=session).order_by("position").values_list("position", "role", "content")
    while some := list(rows.filter(position__gt=last)[:16]):
        for last, role, content in some:
            found = hashlib.sha256(found + f"{last} {role} {content}".encode()).digest()
    return found


def of_run(turn: int, run: int) -> list[Line]:
    """The messages that the server wrote in one run of a turn, in order (A61, A62)."""
    rows = models.Message.objects.filter(turn_id=turn, run=run, origin=Origin.SERVER).order_by("position")
    return [Line(*row) for row in rows.values_list("role", "content", "tool_call_id")]
