"""Finding sessions at /api/sessions, and exports at /api/sessions/ID/export and /api/export."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from agents_app import registry
from agents_app.access_rules import AccessRule
from sessions_app.aap.management import downloads, parameters
from sessions_app.core.base import database
from sessions_app.core.records import search_index
from sessions_app.core.sessions import export_files
from sessions_app.core.tenancy import keys
from sessions_app.models import ApiKey, AuditRecord, Session, TurnState, Workspace
from tests.faces.aap.conftest import WAIT, Person, key_of, problem, whole
from tests.faces.aap.test_tokens import api, minted
from tests.faces.admin.conversations import make_turn, say


def talked(person: Person, text: str, **more: Any) -> str:
    """A session whose user has written this; its words are indexed."""
    public_id = person.create(**more)
    row = Session.objects.get(public_id=public_id)
    say(row, "user", text)
    search_index.index_session(row.pk)
    return public_id


def found(person: Person, query: str = "") -> list[str]:
    answer = api(person).get(f"/sessions{query}")
    assert answer.status_code == 200, answer.content
    return [each["sessionId"] for each in answer.json()["sessions"]]


def acts(action: str) -> list[tuple[str, str, str]]:
    return list(AuditRecord.objects.filter(action=action).order_by("pk").values_list("actor", "target", "detail"))


def actor(person: Person) -> str:
    assert person.key is not None
    return f"key:{person.key[: keys.PREFIX_LENGTH]}"


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


# --- finding ---


def test_sessions_are_found_by_words_agent_key_state_and_time(alice: Person) -> None:
    invoice, refund = talked(alice, "the invoice 4711"), talked(alice, "a refund", agent="bare")
    idle = alice.create()
    Session.objects.filter(public_id=idle).update(created_at=timezone.now() - timedelta(days=3))
    assert found(alice, "?words=invoice") == [invoice]
    assert found(alice, "?words=invo*+4711&agent=pilot") == [invoice]
    assert found(alice, "?words=invoice&agent=bare") == []
    assert found(alice, f"?id={refund[:12]}") == [refund]
    assert found(alice, f"?key={alice.key[:8] if alice.key else ''}") == [refund, invoice, idle]
    assert found(alice, "?key=ah_nobody") == []
    day = (timezone.now() - timedelta(days=3)).date().isoformat()
    assert found(alice, f"?until={day}") == [idle]
    assert found(alice, f"?since={day}&until={day}") == [idle]
    make_turn(Session.objects.get(public_id=invoice), TurnState.WAITING)
    assert found(alice, "?state=waiting") == [invoice]
    assert found(alice, "?state=idle") == [refund, idle]
    shown = api(alice).get("/sessions?state=waiting").json()["sessions"][0]
    assert (shown["agent"], shown["state"]) == ("pilot", "waiting")


def test_a_list_of_found_sessions_has_pages(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "PAGE", 2)
    made = [alice.create() for _ in range(5)]
    seen, before = [], ""
    while True:
        page = api(alice).get(f"/sessions{before}").json()
        seen += [each["sessionId"] for each in page["sessions"]]
        if "next" not in page:
            break
        before = f"?before={page['next']}"
    assert seen == made[::-1]


def test_only_what_the_caller_sees_is_found(alice: Person, bob: Person) -> None:
    own, other, hidden = talked(alice, "the word"), talked(alice, "the word", agent="bare"), talked(bob, "the word")
    assert found(alice, "?words=word") == [other, own]
    assert found(bob, "?words=word") == [hidden]
    limited = Person(key_of("alice", scopes=["sessions:read"], allowed=["pilot"]))
    assert found(limited, "?words=word") == [own]
    assert found(limited, f"?id={other}") == []
    assert found(Person(minted(alice, own)["token"])) == [own]
    problem(api(Person(key_of("alice", scopes=["sessions:write"]))).get("/sessions"), 403)


@pytest.mark.parametrize("query", ["state=running!", "since=monday", "before=x", "words=" + "a" * 201, "id=%00"])
def test_a_query_that_means_nothing_is_refused(alice: Person, query: str) -> None:
    problem(api(alice).get(f"/sessions?{query}"), 400)


def test_lists_of_sessions_are_in_the_audit_once_an_hour(alice: Person) -> None:
    alice.create()
    for _ in range(3):
        found(alice)
        alice.get("/sessions")
    assert [record[:2] for record in acts("sessions_listed")] == [(actor(alice), "sessions")]


# --- exports ---


def test_a_session_is_taken_away_as_lines_that_prove_to_be_complete(alice: Person) -> None:
    session = talked(alice, "take me away")
    answer = api(alice).get(f"/sessions/{session}/export")
    body = whole(answer)
    assert answer["Content-Disposition"] == f'attachment; filename="{session}.jsonl"'
    assert (answer["Cache-Control"], answer["X-Content-Type-Options"]) == ("no-store", "nosniff")
    records = lines(body)
    assert [record["content"] for record in records if record["type"] == "message"] == ["take me away"]
    assert records[-1]["sha256"] == hashlib.sha256(b"".join(body.splitlines(keepends=True)[:-1])).hexdigest()
    assert acts("session_exported") == [(actor(alice), f"session {session}", "JSON Lines")]


def test_a_session_is_taken_away_as_a_page(alice: Person) -> None:
    session = talked(alice, "<script>alert(1)</script>")
    body = whole(api(alice).get(f"/sessions/{session}/export?form=html"))
    assert b"<!doctype html>" in body.lower()
    assert b"<script>alert" not in body


def test_a_tenant_is_taken_away_without_the_others(alice: Person, bob: Person) -> None:
    own, _ = talked(alice, "mine"), talked(bob, "not yours")
    old = alice.create()
    Session.objects.filter(public_id=old).update(created_at=timezone.now() - timedelta(days=3))
    answer = api(alice).get(f"/export?pages=true&since={timezone.now().date()}")
    with zipfile.ZipFile(io.BytesIO(whole(answer))) as archive:
        assert sorted(archive.namelist()) == sorted([f"{own}.html", f"{own}.jsonl", "index.jsonl"])
        assert b"mine" in archive.read(f"{own}.jsonl")
    (record,) = acts("tenant_exported")
    assert record == (actor(alice), "tenant alice", f"JSON Lines and HTML; since {timezone.now():%Y-%m-%d}")


def test_an_export_needs_its_scope_and_the_sight(alice: Person, bob: Person) -> None:
    session = talked(alice, "mine")
    problem(api(bob).get(f"/sessions/{session}/export"), 404)
    writer = Person(key_of("alice", scopes=["sessions:read", "sessions:write"]))
    for path in (f"/sessions/{session}/export", "/export"):
        assert "export" in problem(api(writer).get(path), 403)["detail"]
        problem(api(Person(minted(alice, session)["token"])).get(path), 403)
    limited = Person(key_of("alice", scopes=["export"], allowed=["bare"]))
    problem(api(limited).get(f"/sessions/{session}/export"), 404)
    problem(api(limited).get("/export"), 409)
    problem(api(alice).get(f"/sessions/{session}/export?form=exe"), 400)
    assert acts("session_exported") == acts("tenant_exported") == []


def test_asking_for_the_headers_takes_nothing_away(alice: Person) -> None:
    session = talked(alice, "mine")
    assert api(alice).request("HEAD", f"/sessions/{session}/export").status_code == 200
    assert acts("session_exported") == []


def test_files_that_the_operator_restricts_are_not_exported(alice: Person) -> None:
    session = talked(alice, "with files")
    row = Session.objects.get(public_id=session)
    now = timezone.now()
    place = Workspace.objects.create(
        tenant_id=row.tenant_id, public_id="ws_1", root=f"file:///sessions/{session}", private=True,
        changed_at=now, used_at=now, created_at=now,
    )  # fmt: skip
    Session.objects.filter(pk=row.pk).update(workspace=place.pk)
    rules = (AccessRule(paths=(".env",), decision="deny", applies_to=("client",)),)
    with registry.use(list(registry.agents().values()), access=rules):
        for path in (f"/sessions/{session}/export?files=true", "/export?files=true"):
            assert "leave the files out" in problem(api(alice).get(path), 409)["detail"]
        assert whole(api(alice).get(f"/sessions/{session}/export"))
    assert whole(api(alice).get(f"/sessions/{session}/export?files=true"))


def ended() -> None:
    # The client of tests refers to its answers in cycles.
    gc.collect()
    for thread in threading.enumerate():
        if thread.name in ("session-export", "tenant-export"):
            thread.join(60)
            assert not thread.is_alive()


def test_a_tenant_uses_at_most_half_of_the_downloads(alice: Person, bob: Person) -> None:
    session = talked(alice, "x" * 500_000)
    unread = [api(alice).get(f"/sessions/{session}/export") for _ in range(export_files.OF_TENANT)]
    assert all(answer.status_code == 200 for answer in unread)
    assert "of this tenant" in problem(api(alice).get("/export"), 409)["detail"]
    assert whole(api(bob).get("/export"))
    del unread
    ended()
    assert whole(api(alice).get("/export"))
    ended()


def test_a_revoked_key_does_not_get_the_rest_of_an_export(alice: Person) -> None:
    session = talked(alice, "x" * 20_000_000)
    reader = key_of("alice", scopes=["export"])
    answer = api(Person(reader)).get(f"/sessions/{session}/export")
    revoke = partial(ApiKey.objects.filter(digest=keys.digest_of(reader)).update, revoked_at=timezone.now())

    async def read() -> None:
        async for number, _chunk in aenumerate(answer):
            if not number:
                await database.run(revoke)
            # Until the watch has seen it.
            await asyncio.sleep(0.05)

    with pytest.raises(downloads.KeyEnded):
        asyncio.run(asyncio.wait_for(read(), WAIT))
    ended()


async def aenumerate(answer: Any) -> AsyncIterator[tuple[int, bytes]]:
    number = 0
    async for chunk in answer:
        yield number, chunk
        number += 1
