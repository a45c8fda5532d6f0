"""Connections end with their key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessions_app.ahp.client import Client
from sessions_app.core import database, keys, tenants
from sessions_app.models import ApiKey
from tests.cast import Cast

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rule("R8")
@pytest.mark.parametrize("end", [keys.revoke, keys.expire])
async def test_a_key_that_ends_closes_its_connections_with_1008_shaken_hands_or_not(
    host: str, cast: Cast, end: Callable[..., bool]
) -> None:
    ready, silent, other = (
        Client(host, key, name) for key, name in ((cast.alice.key, "a"), (cast.alice.key, "b"), (cast.alice.reading_key, "c"))
    )
    for client in (ready, silent, other):
        await client.open()
    for client in (ready, other):
        await client.initialize()
    key = await ApiKey.objects.select_related("tenant").aget(pk=cast.alice.caller.key)
    await database.run(end, key, actor="the tests")
    assert [await client.ended() for client in (ready, silent)] == [1008, 1008]
    await other.request("ping")
    await other.close()


@pytest.mark.rule("R8")
async def test_a_suspension_closes_all_connections_of_its_tenant_and_no_others(host: str, cast: Cast) -> None:
    alice, reader, bob = (Client(host, key, "c") for key in (cast.alice.key, cast.alice.reading_key, cast.bob.key))
    for client in (alice, reader, bob):
        await client.open()
        await client.initialize()
    await database.run(tenants.suspend, cast.alice.tenant, actor="the tests")
    assert [await client.ended() for client in (alice, reader)] == [1008, 1008]
    await bob.request("ping")
    await bob.close()
