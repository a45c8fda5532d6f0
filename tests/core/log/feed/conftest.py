"""A tenant with sessions in the real journal, and weather for its announcements."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from channels.layers import channel_layers
from django.db import connection

from sessions_app.core.base import database
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.broadcast.layer import ChannelLayer
from sessions_app.core.log.feed import SessionReader
from sessions_app.core.log.journal.types import Announcement, NewEvent, Stored

_numbers = itertools.count(1)


@dataclass
class Weather:
    """Stands between the journal and broadcast: announcements may get lost, come twice, late and in another order."""

    lost: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    all_lost: bool = False
    seen: list[Announcement] = field(default_factory=list)
    _announce: Callable[[list[Announcement]], None] = broadcast.announce
    _kept: list[Announcement] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, announcements: list[Announcement]) -> None:
        sent: list[Announcement] = []
        with self._lock:
            self.seen += announcements
            for announcement in announcements:
                if self.all_lost or self.chance.random() < self.lost:
                    continue
                if self.chance.random() < self.late:
                    self._kept.append(announcement)
                    continue
                sent.append(announcement)
                if self.chance.random() < self.twice:
                    sent.append(announcement)
            if self._kept and self.chance.random() < 0.5:
                sent.append(self._kept.pop(self.chance.randrange(len(self._kept))))
        self._announce(sent)

    def send_again(self, which: int) -> None:
        self._announce([self.seen[which]])


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    weather = Weather()
    monkeypatch.setattr(broadcast, "announce", weather)
    return weather


@pytest.fixture(autouse=True)
def _own_layer() -> Iterator[None]:
    """No Redis, and nobody else's announcements, unless a test brings them."""
    before = channel_layers.backends.get("default")
    with closing(ChannelLayer(None)) as layer:
        channel_layers.set("default", layer)
        yield
    if before is None:
        channel_layers.backends.pop("default", None)
    else:
        channel_layers.set("default", before)


@dataclass
class Line:
    """A session of a tenant, as far as the journal knows one."""

    tenant: int
    session: int

    def say(self, *texts: str, kind: Kind = Kind.TEXT_DELTA) -> list[Stored]:
        """Append one event for each text in one transaction. From any thread, not from a loop."""
        with journal.transaction() as tx:
            for text in texts:
                tx.append(NewEvent(self.tenant, self.session, Happening(kind, {"delta": text})))
        return tx.stored

    async def tell(self, *texts: str) -> list[Stored]:
        return await database.run(self.say, *texts)


@dataclass
class Lines:
    """Makes tenants and sessions."""

    def tenant(self) -> int:
        tenant = 1_000_000 + next(_numbers)
        with journal.transaction():
            journal.create_counter(tenant)
        return tenant

    def line(self, tenant: int | None = None) -> Line:
        line = Line(self.tenant() if tenant is None else tenant, 1_000_000 + next(_numbers))
        with journal.transaction():
            journal.create_tail(line.session)
        return line


@pytest.fixture
def lines(transactional_db: None) -> Iterator[Lines]:
    yield Lines()
    database.shut_down()
    connection.close()


async def collect(reader: SessionReader, count: int, bound: float = 60.0) -> list[int]:
    """The numbers of the next events, ``count`` of them or more."""
    numbers: list[int] = []
    until = time.monotonic() + bound
    while len(numbers) < count:
        left = until - time.monotonic()
        assert left > 0, f"{len(numbers)} of {count} events came"
        numbers += [event.seq for event in await reader.next(left) or []]
    return numbers
