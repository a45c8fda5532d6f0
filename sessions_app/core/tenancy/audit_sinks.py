"""Sends linked audit records to other systems: a syslog server and a webhook, at least once and in order.

The position of each sink is stored after a batch was taken, so a crash in between sends this batch again, with the same ids.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.utils import timezone

from agents_app import installation
from agents_app.outbound import guard, posting
from agents_app.outbound.request import FetchFailed
from agents_app.outbound.target import AddressRefused
from agents_app.tools.caller import fair_key
from sessions_app.core.base import database, syslog
from sessions_app.core.tenancy import audit_export, webhooks
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import AuditLink, AuditRecord, AuditSink

log = logging.getLogger(__name__)

BATCH = 200
MOST_COUNTED = 10_000
_LATE = timedelta(minutes=10)
"""Records are linked within two minutes and sent within another one."""
TYPE = "audit.records"
_SHORTEST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=1)
_ANSWER_BYTES = 512
_OK = range(200, 300)
_WARNINGS = frozenset({Action.SIGN_IN_FAILED.value, Action.SIGN_IN_LOCKED.value, Action.KEY_REFUSED.value})


class SinkFailed(Exception):
    """A sink did not take a batch. The text says why, for the operator."""


class Sink(ABC):
    """Takes lines of ``audit_export``."""

    name: str
    setting: str
    """That names its address."""

    @abstractmethod
    def send(self, lines: Sequence[dict[str, Any]]) -> None:
        """Send the lines in order; SinkFailed if they may not all have arrived."""


class Syslog(Sink):
    """Each record is one message whose text is the record as JSON."""

    name = "syslog"
    setting = "AGENTHOST_AUDIT_SYSLOG"

    def __init__(self, address: syslog.Address) -> None:
        self._address = address

    def send(self, lines: Sequence[dict[str, Any]]) -> None:
        host = socket.gethostname()
        messages = [
            syslog.message(
                at=datetime.fromisoformat(line["at"]).astimezone(UTC),
                severity=syslog.WARNING if line["action"] in _WARNINGS else syslog.NOTICE,
                host=host,
                name="agenthost",
                kind=line["action"],
                text=json.dumps(line),
            )
            for line in lines
        ]
        try:
            syslog.send(self._address, messages)
        except syslog.CannotSend as error:
            raise SinkFailed(str(error)) from error


class Webhook(Sink):
    """A batch is one POST request, signed as those of tenants' webhooks and sent through the outbound guard.

    Its id is made of the first and the last record, so a receiver recognises a batch that is sent again.
    """

    name = "webhook"
    setting = "AGENTHOST_AUDIT_WEBHOOK_URL"

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._secret = url, secret

    def send(self, lines: Sequence[dict[str, Any]]) -> None:
        event = f"audit_{lines[0]['link']}_{lines[-1]['link']}"
        body = json.dumps({"type": TYPE, "data": {"records": list(lines)}}).encode()
        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Agenthost-Audit/1",
            "webhook-id": event,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": webhooks.signatures([self._secret], event, timestamp, body),
        }
        fair_key.set("audit")
        try:
            answer = asyncio.run(posting.post(self._url, body, headers, guard.current(), _ANSWER_BYTES))
        except (AddressRefused, FetchFailed) as error:
            raise SinkFailed(error.reason) from error
        if answer.status not in _OK:
            raise SinkFailed(f"it answered {answer.status}")


def configured() -> list[Sink]:
    """The sinks that the settings name."""
    found: list[Sink] = []
    if settings.AGENTHOST_AUDIT_SYSLOG:
        found.append(Syslog(syslog.read(settings.AGENTHOST_AUDIT_SYSLOG)))
    if settings.AGENTHOST_AUDIT_WEBHOOK_URL:
        found.append(Webhook(settings.AGENTHOST_AUDIT_WEBHOOK_URL, settings.AGENTHOST_AUDIT_WEBHOOK_SECRET))
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """How a configured sink is doing. ``behind``: the records that it has not got, counted up to ``MOST_COUNTED``."""

    name: str
    setting: str
    behind: int
    lag: timedelta
    """The age of the oldest of these."""
    failures: int
    error: str
    retry_at: datetime | None
    sent_at: datetime | None

    @property
    def is_well(self) -> bool:
        return not self.failures and self.lag < _LATE

    @property
    def advice(self) -> str:
        """What to do; empty if nothing."""
        if self.is_well:
            return ""
        if self.failures:
            return f"Correct {self.setting} or the system behind it. Nothing is lost: it gets all records when it answers again."
        return f"No worker sends: start one ({installation.role('worker')}), and look at its log."


def standings() -> list[Standing]:
    """Of the sinks that the settings name, as the workers have left them."""
    now = timezone.now()
    rows = AuditSink.objects.in_bulk()
    found = []
    for sink in configured():
        row = rows.get(sink.name) or AuditSink(name=sink.name)
        unsent = AuditLink.objects.filter(pk__gt=row.link).order_by("pk").values_list("record", flat=True)
        oldest = AuditRecord.objects.filter(pk__in=unsent[:1]).values_list("at", flat=True).first()
        lag = timedelta() if oldest is None else max(timedelta(), now - oldest)
        behind = len(unsent[:MOST_COUNTED])
        found.append(Standing(sink.name, sink.setting, behind, lag, row.failures, row.error, row.retry_at, row.sent_at))
    return found


def keep_up(seconds: float, may_run: Callable[[], bool] = lambda: True) -> None:
    """One round of the duty: send each configured sink what it has not got, for at most about this time each."""
    for sink in configured():
        until = time.monotonic() + seconds
        while time.monotonic() < until and may_run() and send_next(sink) == BATCH:
            pass


def send_next(sink: Sink) -> int:
    """Send the next batch and store the position; returns the number of records, 0 if there are none or the sink must wait."""
    row, _ = AuditSink.objects.get_or_create(name=sink.name)
    if row.retry_at is not None and row.retry_at > timezone.now():
        return 0
    batch = list(islice(audit_export.lines(row.link), BATCH))
    if not batch:
        return 0
    # Not held while the sink is waited for.
    database.release()
    rows = AuditSink.objects.filter(pk=row.pk)
    try:
        sink.send(batch)
    except SinkFailed as error:
        pause = min(_SHORTEST_PAUSE * 2 ** min(row.failures, 10), _LONGEST_PAUSE)
        rows.update(failures=row.failures + 1, retry_at=timezone.now() + pause, error=str(error)[:300])
        log.warning("audit_sink_failed sink=%s link=%s retry_seconds=%d: %s", sink.name, row.link, pause.total_seconds(), error)
        return 0
    rows.update(link=batch[-1]["link"], failures=0, retry_at=None, error="", sent_at=timezone.now())
    if row.failures:
        log.info("audit_sink_recovered sink=%s after_failures=%d", sink.name, row.failures)
    return len(batch)
