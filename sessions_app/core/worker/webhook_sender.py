"""Sends deliveries of webhooks from the worker's loop, through the outbound guard.

A worker that dies leaves its claims to others, so a delivery may be sent twice, with the same id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from agents_app.outbound import guard, posting
from agents_app.outbound.request import FetchFailed
from agents_app.outbound.target import AddressRefused
from agents_app.tools.caller import fair_key
from sessions_app.core.base import database, redaction
from sessions_app.core.records import webhook_outbox, webhook_queue
from sessions_app.core.records.webhook_queue import Attempt, Claimed
from sessions_app.core.tenancy import webhooks

log = logging.getLogger(__name__)

SLOTS, SLOTS_PER_TENANT = 16, 4
ANSWER_BYTES = 2048
"""Of an answer's body that are kept."""
_STATES_SECONDS = 60.0


class Sender:
    """Created with its worker, used only in the worker's loop."""

    def __init__(self) -> None:
        self._jobs: dict[asyncio.Task[None], Claimed] = {}
        self._states_at = 0.0
        self._stopping = False

    async def sweep(self) -> None:
        """Once a second: record what has happened, and send what is due."""
        await database.run(webhook_outbox.record_new)
        if time.monotonic() >= self._states_at:
            self._states_at = time.monotonic() + _STATES_SECONDS
            await database.run(webhook_outbox.record_states)
        await self._claim()

    async def _claim(self) -> None:
        free = SLOTS - len(self._jobs)
        if free <= 0 or self._stopping:
            return
        of_tenants = Counter(each.tenant for each in self._jobs.values())
        full = [tenant for tenant, jobs in of_tenants.items() if jobs >= SLOTS_PER_TENANT]
        for each in await database.run(webhook_queue.claim, free, SLOTS_PER_TENANT, full):
            task = asyncio.get_running_loop().create_task(self._deliver(each), name=f"webhook delivery {each.pk}")
            self._jobs[task] = each
            task.add_done_callback(lambda done: self._jobs.pop(done, None))

    async def _deliver(self, claimed: Claimed) -> None:
        try:
            attempt = await _attempt(claimed)
            await database.keep_trying(claimed.tenant, webhook_queue.store, claimed, attempt)
        except Exception as error:  # its claim expires, and it is sent again
            log.error("webhook_delivery_failed delivery=%s: %s", claimed.pk, redaction.described(error))

    async def close(self) -> None:
        """Stop sending. Deliveries that are being sent are sent again by another worker."""
        self._stopping = True
        for task in list(self._jobs):
            task.cancel()
        if self._jobs:
            await asyncio.wait(list(self._jobs), timeout=5.0)


async def _attempt(claimed: Claimed) -> Attempt:
    fair_key.set(claimed.tenant)
    body, timestamp = claimed.body.encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Agenthost-Webhooks/1",
        "webhook-id": claimed.event,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": webhooks.signatures(claimed.secrets, claimed.event, timestamp, body),
    }
    started = time.monotonic()
    try:
        answer = await posting.post(claimed.url, body, headers, guard.current(), ANSWER_BYTES)
    except (AddressRefused, FetchFailed) as error:
        return Attempt(None, error.reason, _ms(started))
    return Attempt(answer.status, answer.body.decode("utf-8", "replace"), _ms(started))


def _ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
