"""Lists at a million sessions: every list, filter and search reads a bounded part of its tables, whatever there is.

The plans are the test: no large table is read whole, and few pages of it are. Times are logged.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from sessions_app.admin import paging
from sessions_app.console.urls import urlpatterns
from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.sessions import entries, listing
from sessions_app.core.tenancy import keys, members
from sessions_app.models import ApiKey, AuditRecord, Role, Session, Tenant
from tests.faces.admin import million

log = logging.getLogger(__name__)

MOST_BLOCKS = 5_000
"""Pages of 8 KiB that one statement may read, from the cache or not."""
MOST_BLOCKS_OF_AHP = 16_000
"""AHP's list has no pages: it has a thousand sessions, and reads the newest turn of each."""

FILTERS: Mapping[str, Mapping[str, list[str]]] = {
    "session": {
        "words": ["hello", "rare777", "nowhere"],
        "tenant": ["tenant-1", "tenant-77"],
        "agent": ["agent1", f"agent{million.AGENTS}", "none"],
        "key": ["ah_00000077", "ah_none"],
        "state": ["running", "idle"],
        "since": ["2000-01-01", "2100-01-01"],
        "until": ["2000-01-01", "2100-01-01"],
        "q": ["sess_c4ca42", "sess_none"],
    },
    "auditrecord": {
        "tenant": ["tenant-1", "tenant-77"],
        "action": ["transcript_read", "tenant_deleted", "turn_stopped"],
        "since": ["2000-01-01", "2100-01-01"],
        "until": ["2000-01-01", "2100-01-01"],
        "q": ["key:77", "session sess_c4ca4238a0b923820dcc509a6f75849b", "nobody"],
    },
}


class Reads:
    """The statements of a call, and what Postgres reads for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._raw: list[tuple[str, Any]] = []
        original = raw_sql._on_postgres

        def noted(statements: Any) -> Any:
            self._raw += [(raw_sql.rendered(each.sql, "postgresql"), each.params) for each in statements]
            return original(statements)

        monkeypatch.setattr(raw_sql, "_on_postgres", noted)

    def faults_of(self, what: str, call: Callable[[], object], most: int = MOST_BLOCKS) -> list[str]:
        self._raw.clear()
        with CaptureQueriesContext(connection) as captured:
            started = time.perf_counter()
            call()
            took = (time.perf_counter() - started) * 1000
        asked = [(each["sql"], None) for each in captured.captured_queries] + list(self._raw)
        found = []
        for sql, params in asked:
            if sql.lstrip().lower().startswith(("select", "with")):
                found += [f"{what}: {fault}\n    {_short(sql)}" for fault in _faults(sql, params, most)]
        log.info("%7.1f ms %3d statements  %s", took, len(asked), what)
        return found


def _faults(sql: str, params: Any, most: int) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, buffers, timing off, format json) {sql}", params)
        (found,) = cursor.fetchone()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    if blocks > most:
        yield f"it reads {blocks:,} blocks"
    for node in _nodes(plan):
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if node["Node Type"] == "Seq Scan" and rows > million.LARGE:
            yield f"it reads {node['Relation Name']} whole"


def _short(sql: str) -> str:
    return sql if len(sql) < 600 else f"{sql[:80]} … {sql[sql.rfind(' FROM ') :][:500]}"


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _pages() -> Iterator[tuple[str, dict[str, str]]]:
    for model, its_admin in admin.site._registry.items():
        if model._meta.app_label != "sessions_app":
            continue
        name = str(model._meta.model_name)
        yield name, {}
        given = FILTERS.get(name, {})
        names = [each for form in its_admin.list_filter for each in getattr(form, "names", ())]
        for each in [*names, "q"]:
            for value in given.get(each, _USUAL.get(each, [])):
                yield name, {each: value}


_USUAL = {
    "tenant": ["tenant-1", "tenant-77", "none"],
    "q": ["whd_77", "term:/77", "file:///77", "sess_77", "nothing"],
    "state": ["failed", "active", "revoked", "removed", "running", "exited"],
    "kind": ["command", "default", "shared"],
    "agent": ["agent1", f"agent{million.AGENTS}"],
    "model": ["m:1", "m:2"],
    "purpose": ["turn", "summary"],
    "since": ["2000-01-01", "2100-01-01"],
    "until": ["2000-01-01", "2100-01-01"],
}


def _get(got: list[Any], client: Client, address: str, query: dict[str, str]) -> None:
    got.append(client.get(address, query))


def _deep(model: str, query: dict[str, str], seen: Any) -> dict[str, str] | None:
    """The query of the page in the middle of a long list."""
    older = seen.context["cl"].older
    if older is None:
        return None
    rows = {"session": Session, "auditrecord": AuditRecord}.get(model)
    after = parse_qs(older.lstrip("?"))["after"][0]
    if rows is not None and not query:
        middle = (rows._base_manager.order_by("pk").values_list("pk", flat=True).first() or 0) + 500_000
        after = str(middle)
    return {**query, "after": after}


@pytest.fixture
def filled(on_postgres: bool, transactional_db: None) -> Iterator[Tenant]:
    if not on_postgres:
        pytest.skip("the plans are Postgres'")
    started = time.perf_counter()
    tenant = million.fill()
    log.info("filled in %.0f s", time.perf_counter() - started)
    yield tenant
    # The tests' own emptying would check every foreign key of every row.
    million.empty()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_no_list_filter_or_search_reads_a_large_table(
    filled: Tenant, monkeypatch: pytest.MonkeyPatch, scripted_agents: None
) -> None:
    eve = Client()
    eve.force_login(User.objects.create_superuser("eve"))
    eve.get(reverse("admin:sessions_app_webhook_changelist"))
    reads, faults = Reads(monkeypatch), []
    for model, query in _pages():
        address = reverse(f"admin:sessions_app_{model}_changelist")
        got: list[Any] = []
        faults += reads.faults_of(f"{model} {query}", partial(_get, got, eve, address, query))
        assert got[0].status_code == 200, (model, query)
        assert got[0].context["cl"].looked_at <= paging.WINDOW
        if (deeper := _deep(model, query, got[0])) is not None:
            faults += reads.faults_of(f"{model} {deeper}", partial(eve.get, address, deeper))
    faults += _of_clients(reads, filled)
    faults += _of_members(reads, filled)
    assert not faults, "\n".join(faults)


def _append(pages: list[Any], caller: Caller, after: str | None) -> None:
    pages.append(listing.page(caller, after))


def _of_clients(reads: Reads, tenant: Tenant) -> list[str]:
    """The lists of AAP and AHP, of keys for all agents and for one."""
    found = []
    for agents in (None, ["agent1"]):
        issued = keys.issue(tenant, name="n", scopes=["*"], expires_at=None, allowed_agents=agents, actor="tests")
        caller = keys.authenticate(issued.raw)
        pages: list[Any] = []
        for _ in range(2):
            after = pages[-1].next if pages else None
            found += reads.faults_of(f"AAP {agents} {after}", partial(_append, pages, caller, after))
        found += reads.faults_of(f"AHP 1.0 {agents}", partial(entries.page, caller, 100, None))
        found += reads.faults_of(f"AHP {agents}", partial(entries.listed, caller), MOST_BLOCKS_OF_AHP)
    assert ApiKey.objects.count() > 20_000
    return found


_OF_CONSOLE: Mapping[str, list[dict[str, str]]] = {
    "sessions": [
        {},
        {"before": "500000"},
        *({"words": words} for words in ("hello", "rare777")),
        *({"id": start} for start in ("sess_c4ca42", "sess_none")),
        *({"agent": agent} for agent in ("agent1", f"agent{million.AGENTS}", "none")),
        *({"key": key} for key in ("ah_00000077", "ah_none")),
        *({"state": state} for state in ("running", "idle", "waiting", "error")),
        *({name: day} for name in ("since", "until") for day in ("2000-01-01", "2100-01-01")),
    ]
}


def _of_members(reads: Reads, tenant: Tenant) -> list[str]:
    """The console's pages of the tenant with a tenth of all rows."""
    ann = User.objects.create_user("ann")
    members.add(tenant, ann, Role.OWNER, actor="tests")
    client, found = Client(), []
    client.force_login(ann)
    for page in urlpatterns:
        if page.pattern.converters.keys() == {"slug"} and not (page.name or "new").startswith(("new", "invite")):
            address = reverse(f"console:{page.name}", args=[tenant.slug])
            for query in _OF_CONSOLE.get(page.name or "", [{}]):
                got: list[Any] = []
                found += reads.faults_of(f"{address} {query}", partial(_get, got, client, address, query))
                assert got[0].status_code in (200, 405), address
    return found


@pytest.mark.django_db(transaction=True)
def test_a_lists_number_of_queries_does_not_depend_on_its_rows(on_postgres: bool, scripted_agents: None) -> None:
    if not on_postgres:
        pytest.skip("the rows are made with generate_series")
    eve = Client()
    eve.force_login(User.objects.create_superuser("eve"))
    eve.get(reverse("admin:sessions_app_webhook_changelist"))
    counts: list[dict[str, int]] = []
    for rows in (2, 29):
        million.fill(rows, rows, rows, (rows, rows))
        asked = {}
        for model in sorted({name for name, _ in _pages()}):
            address = reverse(f"admin:sessions_app_{model}_changelist")
            with CaptureQueriesContext(connection) as captured:
                assert eve.get(address).status_code == 200
            asked[model] = len(captured)
        counts.append(asked)
        million.empty()
    assert counts[0] == counts[1]
    assert max(counts[0].values()) < 15
