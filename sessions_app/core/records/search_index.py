"""The full-text index of titles and messages: filled in batches by housekeeping, searched by words, tenant first.

Only texts of users and models are indexed, not thinking, tool calls or their results. A message is indexed when a turn of its
session has ended; requests and runs write nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from agents_app import exact_json
from sessions_app.core.base.maintenance import Round
from sessions_app.models import FiguresMark, Message, SearchText, Session, Turn

_MARK = "search"
LONGEST_MESSAGE, LONGEST_TEXT = 20_000, 100_000
"""Characters of one message and of one row that are indexed."""
_AGAIN = timedelta(minutes=3)
_TURNS, _MESSAGES = 500, 500
MOST_TERMS = 12
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


# --- filling -------------------------------------------------------------------------------------


def index(this: Round, now: datetime) -> int:
    """Index the sessions whose turns ended since the last round; returns the number of new rows. Continued by the next round."""
    stored = FiguresMark.objects.filter(pk=_MARK).values_list("at", flat=True).first()
    # A commit may come after the time in its row, so the last minutes are looked at again.
    mark, added = stored or _FIRST, 0
    while not this.over:
        ended = list(
            Turn.objects.filter(ended_at__gt=mark).order_by("ended_at", "pk").values_list("session_id", "ended_at")[:_TURNS]
        )
        if not ended:
            break
        for session in sorted({session for session, _ in ended}):
            added += index_session(session)
        # More turns than a batch with one and the same time do not occur: a time has microseconds.
        newest = max(at for _, at in ended if at is not None)
        if newest == mark:
            break
        mark = newest
        if len(ended) < _TURNS:
            break
    FiguresMark.objects.update_or_create(pk=_MARK, defaults={"at": max(stored or _FIRST, min(mark, now - _AGAIN))})
    return added


def index_session(session_id: int) -> int:
    """Index what is new in a session. Repeating it changes nothing."""
    with transaction.atomic():
        session = Session.objects.filter(pk=session_id).first()
        if session is None:
            return 0
        rows = SearchText.objects.filter(session_id=session_id)
        title = rows.filter(through=0).first()
        added = 0
        if session.title and (title is None or title.title != session.title):
            rows.filter(through=0).delete()
            _insert(session, 0, session.title[:LONGEST_MESSAGE], session.title)
            added += 1
        through = rows.order_by("-through").values_list("through", flat=True).first() or 0
        for last, text in _texts(session, through):
            _insert(session, last, text, None)
            added += 1
    return added


_PAGES = 500


def purge_removed(this: Round) -> bool:
    """Remove the words of deleted rows from SQLite's index, where they stay until its parts are merged; whether all are gone.

    Postgres removes them when it vacuums the table.
    """
    if connection.vendor == "postgresql":
        return True
    # A negative number begins to merge all parts into one, positive ones continue that. A few pages at once: others write too.
    pages = -_PAGES
    while not this.over:
        with connection.cursor() as cursor:
            before = connection.connection.total_changes
            cursor.execute("insert into searchtext_words(searchtext_words, rank) values ('merge', %s)", [pages])
            # By FTS5's documentation: fewer than two changes show that there was nothing to merge.
            if connection.connection.total_changes - before < 2:
                return True
        pages = _PAGES
    return False


def _texts(session: Session, after: int) -> Iterator[tuple[int, str]]:
    """The texts of new messages, some messages together, each with the position of its last message."""
    messages = Message.objects.filter(session=session, position__gt=after, cut_at=None, role__in=("user", "assistant"))
    texts: list[str] = []
    size = last = 0
    for position, content in messages.order_by("position").values_list("position", "content").iterator(chunk_size=_MESSAGES):
        text = text_of(content)[:LONGEST_MESSAGE]
        if texts and size + len(text) > LONGEST_TEXT:
            yield last, "\n".join(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text)
        last = position
    if any(texts):
        yield last, "\n".join(texts)


def text_of(content: str) -> str:
    """The text of a stored message, without thinking, images and calls."""
    try:
        value = exact_json.loads(content)
    except exact_json.NotJSON:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    return "\n".join(block["text"] for block in value if isinstance(block, dict) and isinstance(block.get("text"), str))


def _insert(session: Session, through: int, text: str, title: str | None) -> None:
    found = tokens(text)
    if connection.vendor == "postgresql":
        # Not by Postgres' own parser, which would split some of the words otherwise than the search does.
        numbered = (f"'{word}':{min(number, _LAST_POSITION)}" for number, word in enumerate(found, 1))
        words = " ".join([f"'{_tenant_word(session.tenant_id)}'", *numbered])
    else:
        words = " ".join(found)
    kind = "tsvector" if connection.vendor == "postgresql" else "text"
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sessions_app_searchtext (tenant_id, session_id, through, title, words)"
            f" values (%s, %s, %s, %s, cast(%s as {kind})) on conflict do nothing",
            [session.tenant_id, session.pk, through, title, words],
        )


_LAST_POSITION = 16383
"""Postgres' limit."""
_WORD = re.compile(r"[^\W_]+")
_NO_SPACES = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]+")
_LONGEST_WORD = 64


def tokens(text: str) -> list[str]:
    """The words of a text, the same for both databases. Of scripts without spaces, each pair of characters is a word."""
    found: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if _NO_SPACES.search(word) and len(word) > 1:
            found += [word[start : start + 2] for start in range(len(word) - 1)]
        else:
            found.append(word[:_LONGEST_WORD])
    return found


def _tenant_word(tenant: int) -> str:
    """A word that no text has, so that one index finds a tenant's words."""
    return f"#{tenant}"


# --- searching -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Term:
    """Words that follow each other; ``excluded``: they must not occur; ``prefix``: the last one may continue."""

    words: tuple[str, ...]
    excluded: bool = False
    prefix: bool = False


_TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


def terms(text: str) -> list[Term]:
    """What was searched for: words, "phrases", -excluded ones, and beginnings of words with a star (invo*)."""
    found = []
    for minus, phrase, word in _TERM.findall(text.replace("\0", " "))[:MOST_TERMS]:
        words = tuple(tokens(phrase or word))
        if words:
            found.append(Term(words, bool(minus), word.endswith("*")))
    # Without a word that must occur there is nothing to look for.
    return found if any(not term.excluded for term in found) else []


@dataclass(frozen=True, slots=True)
class Match:
    row: int
    session: int


_NEWEST = 1000
"""As many of the newest rows are looked through before the index is asked: frequent words are found among them at once."""


def matches(wanted: Sequence[Term], tenant: int | None, before: int | None, limit: int) -> list[Match]:
    """The newest rows with these words, in reverse order of their numbers, from below ``before``."""
    if not wanted:
        return []
    if connection.vendor != "postgresql":
        return _on_sqlite(wanted, tenant, before, limit)
    query, values = _tsquery(wanted, tenant)
    limits, bounds = ("", ()) if before is None else (" and id < %s", (before,))
    of, tenants = ("", ()) if tenant is None else (" and tenant_id = %s", (tenant,))
    newest = (
        f"select id, session_id from (select id, session_id, words from sessions_app_searchtext where true{of}{limits}"
        f" order by id desc limit {_NEWEST}) n where words @@ ({query}) order by id desc limit %s"
    )
    found = _rows(newest, [*tenants, *bounds, *values, limit])
    if len(found) >= limit:
        return found
    # Materialized: the limit would let the planner walk all rows from the newest, which takes long for a rare word.
    every = (
        f"with found as materialized (select id, session_id from sessions_app_searchtext where words @@ ({query}){limits})"
        " select id, session_id from found order by id desc limit %s"
    )
    return _rows(every, [*values, *bounds, limit])


def _tsquery(wanted: Sequence[Term], tenant: int | None) -> tuple[str, list[str]]:
    parts, values = [], []
    if tenant is not None:
        parts.append("%s::tsquery")
        values.append(f"'{_tenant_word(tenant)}'")
    for term in wanted:
        # The words have only letters and digits, so they need no escapes between quotes.
        text = " <-> ".join(f"'{word}'" for word in term.words) + (":*" if term.prefix else "")
        parts.append("!! (%s::tsquery)" if term.excluded else "%s::tsquery")
        values.append(text)
    return " && ".join(parts), values


def _on_sqlite(wanted: Sequence[Term], tenant: int | None, before: int | None, limit: int) -> list[Match]:
    def phrase(term: Term) -> str:
        return '"' + " ".join(term.words) + '"' + ("*" if term.prefix else "")

    query = " AND ".join(phrase(term) for term in wanted if not term.excluded)
    excluded = " OR ".join(phrase(term) for term in wanted if term.excluded)
    if excluded:
        query = f"({query}) NOT ({excluded})"
    where, values = "", [query]
    if tenant is not None:
        where, values = where + " and t.tenant_id = %s", [*values, str(tenant)]
    if before is not None:
        where, values = where + " and f.rowid < %s", [*values, str(before)]
    return _rows(
        "select f.rowid, t.session_id from searchtext_words f join sessions_app_searchtext t on t.id = f.rowid"
        f" where f.words match %s{where} order by f.rowid desc limit {int(limit)}",
        values,
    )


def _rows(sql: str, values: Sequence[int | str]) -> list[Match]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return [Match(row, session) for row, session in cursor.fetchall()]
