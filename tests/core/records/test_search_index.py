"""Sessions are found by words of their titles and messages, by both databases alike."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sessions_app.core.base.maintenance import Round
from sessions_app.core.records import live_workers, search_index
from sessions_app.core.sessions import removing
from sessions_app.models import SearchText, Session, Tenant
from tests.faces.admin.conversations import call_block, make_session, make_tenant, make_turn, say, text_block

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return make_tenant("acme")


def talk(tenant: Tenant, *texts: Any, title: str | None = None, role: str = "user") -> Session:
    session = make_session(tenant, title=title)
    now = live_workers.database_clock()
    turn = make_turn(session, created_at=now, queued_at=now, ended_at=now)
    for text in texts:
        say(session, role, text, turn)
    return session


def index() -> int:
    return search_index.index(Round(60.0), live_workers.database_clock())


def found(text: str, tenant: Tenant | None = None, **given: Any) -> list[int]:
    limits = {"before": None, "limit": 100, **given}
    matches = search_index.matches(search_index.terms(text), None if tenant is None else tenant.pk, **limits)
    return [match.session for match in matches]


def test_words_phrases_beginnings_and_exclusions(acme: Tenant) -> None:
    one = talk(acme, "The invoice 4711 was paid twice", title="Refund of a payment").pk
    two = talk(acme, "Ein Gedicht über das Meer, foo_bar", title="Poem").pk
    index()
    for text, expected in {
        "invoice": [one],
        "INVOICE paid": [one],
        "refund": [one],
        '"paid twice"': [one],
        '"twice paid"': [],
        "invo*": [one],
        "invo": [],
        "über": [two],
        "foo_bar": [two],
        "4711": [one],
        "the": [one],
        "poem -meer": [two],  # the title's row has no such word
        "meer -gedicht": [],
        "-poem": [],
        "": [],
        "'; drop table x --": [],
        "invoice | poem": [],
        ":* & ! <->": [],
    }.items():
        assert found(text) == expected, text


def test_scripts_without_spaces_are_found_by_parts_of_a_sentence(acme: Tenant) -> None:
    session = talk(acme, "東京都の天気はどうですか").pk
    index()
    assert found("天気") == [session]
    assert found("東京の") == []


def test_a_tenants_search_finds_nothing_of_others(acme: Tenant) -> None:
    other = make_tenant("globex")
    ours, theirs = talk(acme, "secret plan").pk, talk(other, "secret plan").pk
    index()
    assert found("plan", acme) == [ours]
    assert found("plan", other) == [theirs]
    assert set(found("plan")) == {ours, theirs}
    assert found(f"#{other.pk}", acme) == []


def test_only_texts_of_users_and_models_are_indexed(acme: Tenant) -> None:
    session = talk(acme, "hello")
    thought = {"type": "thinking", "thinking": "pondering"}
    say(session, "assistant", [thought, text_block("answer"), call_block("c1", "calculator", {"expression": "argument"})])
    say(session, "tool", "resulting", tool_call_id="c1")
    say(session, "system", "instructing")
    index()
    assert found("answer") == [session.pk]
    for word in ("pondering", "argument", "resulting", "instructing", "calculator"):
        assert found(word) == [], word


def test_later_turns_are_added_and_a_repeated_round_adds_nothing(acme: Tenant) -> None:
    session = talk(acme, "first")
    assert index() == 1
    assert index() == 0
    now = live_workers.database_clock()
    say(session, "user", "second", make_turn(session, created_at=now, queued_at=now, ended_at=now))
    Session.objects.filter(pk=session.pk).update(title="Renamed")
    assert index() == 2
    assert found("second") == found("renamed") == found("first") == [session.pk]
    Session.objects.filter(pk=session.pk).update(title="Again")
    search_index.index_session(session.pk)
    assert found("renamed") == []


def test_an_interrupted_round_is_continued(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_TURNS", 2)
    past = live_workers.database_clock() - timedelta(days=2)
    for number in range(5):
        session, at = make_session(acme), past + timedelta(hours=number)
        say(session, "user", f"word{number}", make_turn(session, created_at=at, queued_at=at, ended_at=at))
    assert index() == 5
    over = Round(60.0)
    over._until = 0.0
    assert search_index.index(over, live_workers.database_clock()) == 0
    assert index() == 0


def test_long_and_hostile_texts_are_indexed_in_pieces(acme: Tenant) -> None:
    words = " ".join(f"w{number}" for number in range(4000))
    session = talk(acme, *[words] * 8, "\x01 '\\ :* & | ! <-> \u2028 😀 ' \"", "x" * 50_000)
    index()
    assert found("w17")[:1] == [session.pk]
    assert SearchText.objects.filter(session_id=session.pk).count() == 2
    assert found("x" * 64) == [session.pk]


def test_pages_continue_below_a_row(acme: Tenant) -> None:
    sessions = [talk(acme, "common").pk for _ in range(7)]
    index()
    first = search_index.matches(search_index.terms("common"), acme.pk, None, 4)
    rest = search_index.matches(search_index.terms("common"), acme.pk, first[-1].row, 4)
    assert [match.session for match in [*first, *rest]] == sorted(sessions, reverse=True)


def test_frequent_words_are_found_without_the_index(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_NEWEST", 3)
    sessions = [talk(acme, "common", "rare" if number == 0 else "other").pk for number in range(7)]
    index()
    assert found("common", limit=2) == sessions[:-3:-1]
    assert found("rare", limit=2) == [sessions[0]]


def test_the_words_of_a_deleted_session_are_removed_with_it(acme: Tenant) -> None:
    session = talk(acme, "heliotrope")
    index()
    Session.objects.filter(pk=session.pk).update(deleted_at=live_workers.database_clock())
    removing.remove_session(session.pk)
    assert found("heliotrope") == []
    assert not SearchText.objects.exists()
