"""Watchers of one session in all versions: what each event costs the host is counted in encodings and frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from agenthost import websocket
from sessions_app.ahp.client.client import Client
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection import actions as v0_1
from sessions_app.ahp.versions.v0_9.projection import actions as v0_9
from sessions_app.ahp.versions.v0_9.projection.context import Make
from sessions_app.core.base import database
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Event, NewEvent
from sessions_app.models import Session
from tests.e2e.ahp_mirror import V0_9, V1_0, Mirror, chat_uri
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

EACH = 4
"""Watchers of each version and spelling."""


def say(tenant: int, session: Session, *deltas: str) -> None:
    with journal.transaction() as tx:
        for delta in deltas:
            tx.append(NewEvent(tenant, session.pk, Happening(Kind.TEXT_DELTA, {"turn": "t", "part": "p", "delta": delta})))


def said(client: Client) -> str:
    """The texts of all deltas that a client has received."""
    return "".join(each["action"]["content"] for each in client.seen if each["action"]["type"].endswith("/delta"))


class Encodings:
    """Counts what is encoded for watchers: by version, channel and event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[tuple[str, str, int]] = Counter()
        self.texts: set[str] = set()
        v0_1_envelope, envelope = v0_1.envelope_of, v0_9.Projection._envelope

        def of_0_1(event: Event, uri: str) -> str | None:
            return self._counted(v0_1_envelope(event, uri), "0.1", uri, event)

        def of_others(projection: v0_9.Projection, event: Event, channel: Channel, make: Make) -> str | None:
            face = projection.face
            name = f"{face.family} by provider" if face.by_provider else face.family
            return self._counted(envelope(projection, event, channel, make), name, channel.uri, event)

        monkeypatch.setattr(v0_1, "envelope_of", of_0_1)
        monkeypatch.setattr(v0_9.Projection, "_envelope", of_others)

    def _counted(self, text: str | None, version: str, channel: str, event: Event) -> str | None:
        if text is not None:
            self.sent[version, channel, event.seq] += 1
            self.texts.add(text)
        return text


@pytest.mark.rule("V46", "V402")
async def test_each_event_is_encoded_once_for_each_version_and_spelling(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = sample.alice.caller
    session = await database.run(make_session, caller)
    name = session.public_id
    of_0_1, canonical, other, editors = (
        f"echo:/{name}",
        chat_uri(f"ahp-session:/{name}"),
        f"ahp-chat:/{name}",
        chat_uri(f"echo:/{name}"),
    )
    hello: dict[str, Any] = {"clientInfo": {"name": "vscode-editor-window"}}
    groups: dict[tuple[str, str], Callable[[str], Client]] = {
        ("0.1", of_0_1): lambda id_: Watcher(host, sample.alice.key, id_),
        ("0.9", canonical): lambda id_: Mirror(host, sample.alice.key, id_, V0_9),
        ("1", canonical): lambda id_: Mirror(host, sample.alice.key, id_, V1_0),
        ("1", other): lambda id_: Mirror(host, sample.alice.key, id_, V1_0),
        ("1 by provider", editors): lambda id_: Mirror(host, sample.alice.key, id_, V1_0, hello=hello),
    }
    deltas = [f"word {number} " for number in range(5)]
    async with AsyncExitStack() as stack:
        watchers: list[Client] = []
        for (version, channel), client_of in groups.items():
            for number in range(EACH):
                watchers.append(client := client_of(f"{version} {channel} {number}"))
                stack.push_async_callback(client.close)
                await client.open()
                await client.initialize(channel)
        made, before = Encodings(monkeypatch), websocket.frame_of.cache_info()
        await database.run(say, caller.tenant, session, *deltas)
        for client in watchers:
            await client.until(lambda client=client: said(client) == "".join(deltas))  # type: ignore[misc]
        after = websocket.frame_of.cache_info()
    assert set(made.sent.values()) == {1}
    assert Counter((version, channel) for version, channel, _ in made.sent) == dict.fromkeys(groups, len(deltas))
    # All watchers that get the same text share the bytes of its frame.
    misses, hits = after.misses - before.misses, after.hits - before.hits
    assert (misses, misses + hits) == (len(made.texts), len(watchers) * len(deltas))
