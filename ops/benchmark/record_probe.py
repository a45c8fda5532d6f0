"""Runs within a checkout's Django and prints figures as JSON: ``search MESSAGES`` or ``audit CHANGES``.

``record_rows`` passes this file's text to the checkout's Python, so that it also measures other releases.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from statistics import mean
from typing import Any

import django

django.setup()

from django.db import connection, transaction  # noqa: E402

from sessions_app.core.base.caller import Limits  # noqa: E402
from sessions_app.core.records import search_index  # noqa: E402
from sessions_app.core.tenancy import audit, audit_chain, keys, tenants  # noqa: E402
from sessions_app.models import AuditRecord, Session  # noqa: E402

WORDS_OF_A_MESSAGE, VOCABULARY, QUERIES, WRITES = 40, 50_000, 100, 500
THREADS = 8
# Few words are frequent and most are rare, as in texts.
WORD = f"'w' || floor({VOCABULARY} * power(random(), 3))::int"
FILL = f"""
insert into sessions_app_searchtext (tenant_id, session_id, through, words)
select 1 + mod(g, 50), -g, 1, to_tsvector('simple', 't' || 1 + mod(g, 50) || ' ' || text)
from generate_series(1, %s) g
cross join lateral (select string_agg({WORD}, ' ') as text from generate_series(1, {WORDS_OF_A_MESSAGE}) n where g > 0) as texts
"""


def value(sql: str, *params: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()[0] if cursor.description else None


def search(messages: int) -> dict[str, float]:
    value("delete from sessions_app_searchtext")
    value(FILL, messages)
    value("select gin_clean_pending_list('search_text_words')")
    value("vacuum analyze sessions_app_searchtext")
    index, whole = (value(f"select {kind}") for kind in (
        "pg_relation_size('search_text_words')", "pg_total_relation_size('sessions_app_searchtext')",
    ))  # fmt: skip
    words = [f"w{int(VOCABULARY * random.random() ** 3)}" for _ in range(QUERIES)]
    took = []
    for number, word in enumerate(words):
        text = word if number % 2 else f"{word} {words[number - 1]}"
        began = time.perf_counter()
        search_index.matches(search_index.terms(text), None if number % 3 else 7, None, 500)
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    with_index = _written()
    value("drop index search_text_words")
    without = _written()
    value("delete from sessions_app_searchtext where session_id > 0")
    value("create index search_text_words on sessions_app_searchtext using gin (words)")
    scale = 1e6 / messages / 2**20
    return {
        "index": index * scale, "table": (whole - index) * scale, "p50": took[QUERIES // 2], "p95": took[int(QUERIES * 0.95)],
        "with": with_index, "without": without,
    }  # fmt: skip


def _written() -> float:
    """Milliseconds for the words of one message, without the commit, with its part of the index's later work."""
    texts = [" ".join(f"w{int(VOCABULARY * random.random() ** 3)}" for _ in range(WORDS_OF_A_MESSAGE)) for _ in range(WRITES)]
    start = int(time.time() * 1000) * 1000
    began = time.perf_counter()
    with transaction.atomic():
        for number, text in enumerate(texts):
            search_index._insert(Session(pk=start + number, tenant_id=3), 1, text, None)
    if value("select to_regclass('search_text_words')") is not None:
        value("select gin_clean_pending_list('search_text_words')")
    return (time.perf_counter() - began) * 1000 / WRITES


def audit_of_changes(changes: int) -> dict[str, float]:
    """Key changes in one tenant by several threads, each of its own key, while records are being linked."""
    tenant, _ = tenants.create(f"bench-audit-{int(time.time() * 1000)}")
    mine = [
        keys.issue(tenant, name=f"key {number}", scopes=["*"], expires_at=None, allowed_agents=None, actor="bench").key
        for number in range(THREADS)
    ]
    while audit_chain.link_new():
        pass
    recorded, record = _burst(mine, changes), audit.record
    rows = AuditRecord.objects.filter(tenant=tenant).count()
    audit.record = lambda **_: None  # type: ignore[assignment]  # for comparison only
    bare = _burst(mine, changes)
    audit.record = record
    began, cpu = time.perf_counter(), time.process_time()
    with transaction.atomic():
        for number in range(changes):
            audit.record(actor="bench", action=audit.Action.KEY_CHANGED, target=f"key {number}", tenant=tenant)
    cpu = (time.process_time() - cpu) * 1000 / changes
    alone = (time.perf_counter() - began) * 1000 / changes
    began, linked = time.perf_counter(), 0
    while found := audit_chain.link_new():
        linked += found
    took = time.perf_counter() - began
    if rows < changes or linked < changes:
        raise SystemExit(f"{rows} records and {linked} links of {changes} changes")
    return {
        "with": recorded["ms"], "without": bare["ms"], "waits": recorded["waits"], "waits_without": bare["waits"],
        "record": alone, "cpu": cpu, "linked": linked / took,
    }  # fmt: skip


def _burst(mine: list[Any], changes: int) -> dict[str, float]:
    done = threading.Event()
    waits: list[float] = []

    def change(key: Any) -> None:
        for number in range(changes // THREADS):
            keys.set_limits(key, Limits(turns_at_once=1 + number % 2 + (number + 1) % 2 * 5), actor="bench")
        connection.close()

    def sample() -> None:
        while not done.wait(0.005):
            waits.append(value(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            ))  # fmt: skip
        connection.close()

    def link() -> None:
        while not done.wait(0.2):
            audit_chain.link_new()
        connection.close()

    others = [threading.Thread(target=sample), threading.Thread(target=link)]
    threads = [threading.Thread(target=change, args=(key,)) for key in mine]
    began = time.perf_counter()
    for thread in (*others, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    done.set()
    for thread in others:
        thread.join()
    return {"ms": took * 1000 / (changes // THREADS * THREADS), "waits": mean(waits or [0]) / THREADS * 100}


if __name__ == "__main__":
    kind, number = sys.argv[-2], int(sys.argv[-1])
    print(json.dumps(search(number) if kind == "search" else audit_of_changes(number)))
