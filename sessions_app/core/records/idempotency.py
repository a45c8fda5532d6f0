"""Idempotency keys: a request that is sent several times takes effect once.

The record of a request is written in the transaction that accepts it, so it exists exactly if the request took effect. A
repeated request gets the result of the first one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from agents_app import exact_json
from sessions_app.core.base import maintenance, sealing
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import IdempotencyKeyReused, NotReady
from sessions_app.models import IdempotencyRecord

T = TypeVar("T")

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of a request. ``client_key``: the key as sent, ``digest``: a digest of the body.

    The digest is keyed, because bodies contain secrets that could otherwise be guessed from the table. ``plain_digest`` is
    the form of an older release; it recognises a retry across an upgrade.
    """

    route: str
    client_key: str
    digest: str
    plain_digest: str = field(repr=False)

    @staticmethod
    def of(route: str, client_key: str, body: Any) -> IdempotencyKey:
        """The key of a request. Bodies that differ only in the order of members or in white space are the same."""
        text = _canonical(body)
        keyed = sealing.fingerprint(exact_json.dumps([route, client_key, text]))
        return IdempotencyKey(route, client_key, keyed, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    def matches(self, stored: str) -> bool:
        """Whether a stored digest is of this body."""
        return stored in (self.digest, self.plain_digest)


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        members = sorted((exact_json.dumps(key), _canonical(member)) for key, member in value.items())
        return "{" + ",".join(f"{key}:{member}" for key, member in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_canonical(item) for item in value) + "]"
    return exact_json.dumps(value)


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """The result of the first request with the same key."""

    session: str
    turn: str
    run: int


def find(caller: Caller, idempotency_key: IdempotencyKey | None) -> EarlierResult | None:
    """The result of an earlier request with this key, if there was one; IdempotencyKeyReused if its body was different."""
    if idempotency_key is None:
        return None
    record = IdempotencyRecord.objects.filter(
        api_key_id=caller.key, route=idempotency_key.route, client_key=idempotency_key.client_key, created_at__gt=Now() - KEPT_FOR
    ).first()
    if record is None:
        return None
    if not idempotency_key.matches(record.digest):
        raise IdempotencyKeyReused
    return EarlierResult(record.session, record.turn, record.run)


class ConcurrentRequest(Exception):
    """A parallel request with the same key was accepted first: roll back and ``find`` its result."""


def record(caller: Caller, idempotency_key: IdempotencyKey | None, *, session: str, turn: str = "", run: int = 0) -> None:
    """Record an accepted request, inside its transaction.

    Waits for a parallel transaction with the same key, and raises ConcurrentRequest if that one commits.
    """
    if idempotency_key is None:
        return
    IdempotencyRecord.objects.filter(
        api_key_id=caller.key,
        route=idempotency_key.route,
        client_key=idempotency_key.client_key,
        created_at__lte=Now() - KEPT_FOR,
    ).delete()
    try:
        with transaction.atomic():
            IdempotencyRecord.objects.create(
                api_key_id=caller.key,
                route=idempotency_key.route,
                client_key=idempotency_key.client_key,
                digest=idempotency_key.digest,
                session=session,
                turn=turn,
                run=run,
                created_at=Now(),
            )
    except IntegrityError as error:
        raise ConcurrentRequest from error


def run_once(
    caller: Caller, idempotency_key: IdempotencyKey | None, repeated: Callable[[EarlierResult], T], accept: Callable[[], T]
) -> T:
    """The result of ``accept``, which must ``record`` the request; for a repetition, ``repeated`` of the earlier result."""
    # Of two parallel requests, the second finds the result of the first in its second attempt.
    for _ in range(2):
        if (earlier := find(caller, idempotency_key)) is not None:
            return repeated(earlier)
        try:
            return accept()
        except ConcurrentRequest:
            continue
    raise NotReady


def delete_old() -> int:
    """Delete records that are older than a day; returns their number."""
    return maintenance.delete_in_batches(IdempotencyRecord.objects.filter(created_at__lte=Now() - KEPT_FOR))
