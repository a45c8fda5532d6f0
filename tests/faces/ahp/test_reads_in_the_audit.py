"""What clients read over AHP is in the audit, with the key and the address of the connection."""

from __future__ import annotations

import pytest

from sessions_app.ahp.client.client import Disconnected
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import api_audit
from sessions_app.models import AuditRecord
from tests.faces.ahp.test_rights import opened
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)


async def reads() -> list[tuple[str, str, str]]:
    rows = AuditRecord.objects.filter(action="transcript_read").order_by("pk")
    return [row async for row in rows.values_list("actor", "target", "address")]


async def test_a_subscription_a_replay_and_earlier_turns_are_reads_and_the_root_is_none(host: str, sample: SampleTenants) -> None:
    sessions = [await database.run(make_session, sample.alice.caller) for _ in range(2)]
    first, second = [await database.run(addresses.of, each) for each in sessions]
    client = await opened(host, sample.alice.key, "watcher", ROOT)
    assert await reads() == []
    await client.request("subscribe", {"resource": first})
    await client.request("fetchTurns", {"session": second})
    expected = [(f"key:{sample.alice.caller.key_prefix}", f"session {each.public_id}", "127.0.0.1") for each in sessions]
    assert await reads() == expected
    api_audit.forget_known()
    await AuditRecord.objects.all().adelete()
    client.cut()
    with pytest.raises(Disconnected):
        await client.until(lambda: False)
    assert await client.reconnect() == "replay"
    assert await reads() == expected[:1]
    await client.close()


async def test_the_address_of_a_connection_is_recorded_at_the_keys_first_use(host: str, sample: SampleTenants) -> None:
    for name in ("one", "two"):
        client = await opened(host, sample.alice.key, name, ROOT)
        await client.close()
    rows = AuditRecord.objects.filter(action="key_used_from_new_address")
    assert [row async for row in rows.values_list("actor", "address")] == [(f"key:{sample.alice.caller.key_prefix}", "127.0.0.1")]
