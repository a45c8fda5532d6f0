"""Secrets at rest: sealed, bound to their place, and resealed when the key ring changes."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command

from sessions_app.core.base import sealing
from sessions_app.core.records import options
from sessions_app.core.tenancy import definitions
from sessions_app.models import AgentDefinition, OptionValue
from tests.core.conftest import World

OLD, NEW = bytes(range(32)), bytes(range(1, 33))


def test_a_sealed_value_opens_only_in_its_place(settings: Any) -> None:
    settings.AGENTHOST_KEY_RING = [OLD]
    sealed = sealing.seal("sk-canary", ["option", 1, 2, "key"])
    assert b"canary" not in sealed
    assert sealing.unseal(sealed, ["option", 1, 2, "key"]) == "sk-canary"
    places: list[list[str | int]] = [["option", 1, 3, "key"], ["option", 2, 2, "key"], ["option", 1, 2, "other"]]
    for place in places:
        with pytest.raises(sealing.CannotUnseal):
            sealing.unseal(sealed, place)


def test_every_key_of_the_ring_opens_and_the_newest_seals(settings: Any) -> None:
    settings.AGENTHOST_KEY_RING = [OLD]
    sealed = sealing.seal("x", ["p"])
    settings.AGENTHOST_KEY_RING = [NEW, OLD]
    assert sealing.unseal(sealed, ["p"]) == "x"
    assert sealing.key_id_of(sealing.seal("x", ["p"])) == sealing.newest_key_id() != sealing.key_id_of(sealed)
    settings.AGENTHOST_KEY_RING = [NEW]
    with pytest.raises(sealing.CannotUnseal):
        sealing.unseal(sealed, ["p"])


@pytest.mark.rule("A30")
def test_secrets_are_sealed_in_the_table_and_resealed_by_the_command(alice: World, settings: Any) -> None:
    settings.AGENTHOST_KEY_RING = [OLD]
    session = alice.session(options={"key": "sk-canary", "tone": "dry"})
    alice.say(session, "hello")
    row = OptionValue.objects.get(session=session, name="key")
    assert row.value is None
    assert b"canary" not in bytes(row.sealed or b"")
    definition = AgentDefinition.objects.get()
    assert "sk-default" not in definition.document
    assert b"sk-default" not in bytes(definition.sealed or b"")
    settings.AGENTHOST_KEY_RING = [NEW, OLD]
    call_command("reseal_secrets")
    settings.AGENTHOST_KEY_RING = [NEW]
    assert options.opened(session.tenant_id, session.pk) == {"key": "sk-canary", "tone": "dry"}
    definition.refresh_from_db()
    spec = definitions.by_digest(definition.pk, definition.digest)
    option = spec.option("key")
    assert option is not None
    assert option.default == "sk-default"


@pytest.mark.rule("A69")
def test_a_masked_secret_stays_and_an_empty_one_goes_back_to_the_default(alice: World) -> None:
    session = alice.session(options={"key": "***"})
    assert options.opened(session.tenant_id, session.pk) == {}
    from sessions_app.core.records.session_settings import Overrides

    alice.say(session, "one", Overrides(options={"key": "sk-mine"}))
    from sessions_app.core import turns

    turns.cancel(alice.caller, session)
    alice.say(session, "two", Overrides(options={"key": "***", "tone": "x"}))
    assert options.opened(session.tenant_id, session.pk) == {"key": "sk-mine", "tone": "x"}
    turns.cancel(alice.caller, session)
    alice.say(session, "three", Overrides(options={"key": ""}))
    assert options.opened(session.tenant_id, session.pk) == {"tone": "x"}
