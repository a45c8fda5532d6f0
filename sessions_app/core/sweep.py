"""What every worker looks for once a second: turns nobody woke it for, and runs whose worker died."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from django.conf import settings

from sessions_app.core import presence, turns
from sessions_app.core.turns import Claimed
from sessions_app.models import Turn, TurnState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Sweeper:
    """One worker's sweep.

    It waits one lease's time after its own first contact with the database (and after every loss of
    contact): the leases that ran out while the database was away belong to workers that could not renew them.
    """

    worker: str
    _in_contact_since: float | None = field(default=None)

    def lost_contact(self) -> None:
        self._in_contact_since = None

    def queued(self) -> Claimed | None:
        """A turn that has waited in the queue although a wake-up should have come."""
        return turns.claim(self.worker, older_than=settings.AGENTHOST_QUEUE_GRACE_SECONDS)

    def abandoned(self) -> list[Claimed]:
        """Runs of dead workers that this one goes on with; those that cannot go on are ended."""
        now = time.monotonic()
        if self._in_contact_since is None:
            presence.workers_alive()
            self._in_contact_since = now
        if now - self._in_contact_since < settings.AGENTHOST_LEASE_SECONDS:
            return []
        claimed: list[Claimed] = []
        while True:
            outcome = turns.take_over(self.worker)
            if outcome is False:
                return claimed
            if isinstance(outcome, Claimed):
                log.warning("took over turn %s of a worker that is gone", outcome.turn_id)
                claimed.append(outcome)


def still_mine(worker: str) -> dict[int, int]:
    """This worker's runs as the database has them: turn and fence."""
    return dict(Turn.objects.filter(worker=worker, state=TurnState.RUNNING).values_list("pk", "fence"))
