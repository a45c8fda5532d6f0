"""Failures of the feed or the notifications: connections are closed, and clients reconnect and miss nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.client.client import Disconnected
from sessions_app.ahp.tenant.notifications import Notifications
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.log.feed.tenant import TenantFeed
from sessions_app.core.records import session_changes
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rule("R65", "R281")
@pytest.mark.parametrize(("of", "name"), [(TenantFeed, "_take"), (Notifications, "_publish_change")])
async def test_clients_reconnect_and_miss_nothing_after_feed_or_notifications_fail(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch, of: Any, name: str
) -> None:
    caller = sample.alice.caller
    session = await database.run(make_session, caller)
    uri = f"echo:/{session.public_id}"
    original = getattr(of, name)

    def fail_once(*args: Any) -> Any:
        monkeypatch.setattr(of, name, original)
        raise RuntimeError("words of a session")

    client = Watcher(host, sample.alice.key, "watcher")
    await client.open()
    await client.initialize(ROOT, uri)
    monkeypatch.setattr(of, name, fail_once)
    await database.run(session_changes.rename, caller, session, "first", dispatched=None)
    with pytest.raises(Disconnected):
        await client.until(lambda: False)
    await client.reconnect()
    await database.run(session_changes.rename, caller, session, "second", dispatched=None)
    await client.until(lambda: client.mirrors[uri].confirmed["summary"]["title"] == "second")
    await client.check(uri)
    await client.close()
