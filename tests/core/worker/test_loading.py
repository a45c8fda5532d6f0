"""Loading: several runs at once, each with its own data or its own error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agents_app import registry
from agents_app.runtime import long_work
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base import database, raw_sql
from sessions_app.core.turns import ClientResult
from sessions_app.core.worker import loading
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.worker import Worker
from sessions_app.models import OptionValue, Session
from tests.core.conftest import World, wait_for_state
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text, usage

pytestmark = pytest.mark.django_db(transaction=True)

READ_LOG = {"name": "read_log", "description": "Reads the log", "parameters": {"type": "object", "properties": {}}}
LONG_LINE = "x" * 20_000


def claims(count: int) -> list[turns.Claimed]:
    found = turns.claim("w", count).runs
    assert len(found) == count
    return found


def loaded(claimed: turns.Claimed, all_loaded: dict[int, Loaded | Exception]) -> Loaded:
    found = all_loaded[claimed.turn_id]
    assert isinstance(found, Loaded)
    return found


def by_session(found: list[turns.Claimed]) -> dict[int, turns.Claimed]:
    return {claimed.session: claimed for claimed in found}


def seeded(world: World, *, lines: int, characters: str = LONG_LINE) -> Session:
    return world.session(seed=[{"role": "user", "content": characters}, {"role": "assistant", "content": "Aye."}] * (lines // 2))


def test_each_run_gets_the_data_of_its_own_session(alice: World, bob: World) -> None:
    first = alice.session(tools=[{"name": "add_one", "trust": True}], options={"key": "sk-alice", "tone": "gruffly"})
    second = bob.session(client_tools=[READ_LOG], seed=[{"role": "system", "content": "S"}])
    accepted = {first.pk: alice.say(first, "ahoy"), second.pk: bob.say(second, "morning")}
    found = claims(2)
    all_loaded = loading.load(found)
    of_alice, of_bob = (loaded(by_session(found)[session.pk], all_loaded) for session in (first, second))
    assert (of_alice.public_id, of_alice.session_public_id) == (accepted[first.pk].public_id, first.public_id)
    assert (of_alice.options, of_bob.options) == ({"key": "sk-alice", "tone": "gruffly"}, {})
    assert of_alice.settings.trusted == {"add_one"}
    assert of_bob.settings.client_tools == [READ_LOG]
    assert [(message.role, message.content) for message in of_alice.messages] == [("user", "ahoy")]
    assert [(message.role, message.content) for message in of_bob.messages] == [("system", "S"), ("user", "morning")]
    assert (of_alice.run, of_alice.step, of_alice.has_calls, of_alice.stored) == (1, 0, False, 0)
    assert "sk-alice" not in repr(of_alice)


def test_a_secret_that_cannot_be_opened_is_the_error_of_its_own_run(alice: World) -> None:
    broken, good = alice.session(options={"key": "sk-1"}), alice.session(options={"key": "sk-2"})
    OptionValue.objects.filter(session=broken, name="key").update(sealed=b"broken")
    for session in (broken, good):
        alice.say(session, "ahoy")
    found = claims(2)
    all_loaded = loading.load(found)
    assert isinstance(all_loaded[by_session(found)[broken.pk].turn_id], Exception)
    assert loaded(by_session(found)[good.pk], all_loaded).options == {"key": "sk-2"}


def test_a_turn_keeps_the_definition_with_which_it_was_accepted(alice: World, agents: Callable[..., AgentSpec]) -> None:
    alice.say(alice.session(), "ahoy")
    with registry.use([replace(agents(), instructions="Sing.")]):
        (claimed,) = claims(1)
        assert loaded(claimed, loading.load([claimed])).spec.instructions == "Speak {tone}."


def test_a_later_run_continues_with_the_steps_tokens_and_bytes_of_earlier_ones(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    worker = start_worker()
    session = alice.session(client_tools=[READ_LOG])
    accepted = alice.say(session, model.script([text("looking"), call("read_log", {}, id="c"), usage(30, 5)], [text("calm")]))
    wait_for_state(accepted, "waiting")
    worker.stop(grace=0)
    alice.answer(session, ClientResult(0, "c", "all calm"))
    (claimed,) = claims(1)
    second = loaded(claimed, loading.load([claimed]))
    assert (second.run, second.step, second.has_calls, second.tokens) == (2, 1, True, (30, 5, 0))
    assert [part["kind"] for part in second.parts] == ["text", "call"]
    # The bytes of the model's message and of the result count towards the turn's limit, the user's message does not.
    assert second.stored >= len("looking") + len("all calm")
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]


def test_the_time_left_is_counted_by_the_databases_clock(alice: World) -> None:
    alice.say(alice.session(), "no deadline")
    turns.start(alice.caller, alice.session(), content="soon", deadline=50.0)
    found = claims(2)
    left = [each.seconds_left for each in loading.load(found).values() if isinstance(each, Loaded)]
    assert left.count(None) == 1
    assert [40 < each <= 50 for each in left if each is not None] == [True]


def test_only_the_shortest_histories_are_loaded_with_their_claims(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = alice.session(), seeded(alice, lines=4)
    for session in (long, short):
        alice.say(session, "ahoy")
    found = by_session(claims(2))
    of_both = {found[long.pk]: 40_000, found[short.pk]: 4}

    def loaded_with_claim(limit: int) -> set[int]:
        begun: list[dict[int, Loaded | Exception]] = []
        monkeypatch.setattr(loading, "_LOADED_WITH_CLAIM", limit)
        loader = loading.LoadWithClaim(lambda _, all_loaded: begun.append(all_loaded))
        loader.begin(raw_sql.rows_of_each(loader.queries(of_both)))
        return set(begun[0])

    assert loaded_with_claim(30_000) == {found[short.pk].turn_id}
    assert loaded_with_claim(100_000) == {claimed.turn_id for claimed in of_both}
    assert loaded_with_claim(0) == set()


@pytest.mark.parametrize("long", [False, True])
async def test_a_run_that_is_loaded_alone_gets_the_same_messages_however_long(
    alice: World, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare() -> turns.Claimed:
        alice.say(seeded(alice, lines=4), "ahoy")
        return claims(1)[0]

    monkeypatch.setattr(long_work, "LONG", 1000 if long else 10**9)
    claimed = await database.run(prepare)
    alone = await loading.load_one(claimed)
    together = await database.run(loading.load, [claimed])
    assert alone.messages == loaded(claimed, together).messages
    assert [message.role for message in alone.messages] == ["user", "assistant", "user", "assistant", "user"]


async def test_the_error_of_a_run_that_is_loaded_alone_is_raised(alice: World) -> None:
    def prepare() -> turns.Claimed:
        session = alice.session(options={"key": "sk-1"})
        OptionValue.objects.filter(session=session).update(sealed=b"broken")
        alice.say(session, "ahoy")
        return claims(1)[0]

    claimed = await database.run(prepare)
    with pytest.raises(Exception, match=r"."):
        await loading.load_one(claimed)
