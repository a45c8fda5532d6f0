"""Doing a request once, however often it is sent.

A record of what a key stood for is written in the transaction that accepts the request, so it is there
exactly if the request took effect. Whoever comes again gets what was accepted then, and joins it.
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
    """A client's wish that a request takes effect once. ``route`` is where it was sent, ``digest`` identifies its body.

    The digest is keyed: bodies hold secrets, and reading the table must not be enough to confirm a guess.
    ``plain_digest`` is what the previous release stored; a retry across an upgrade is recognised by it.
    """

    route: str
    client_key: str
    digest: str
    plain_digest: str = field(repr=False)

    @staticmethod
    def of(route: str, client_key: str, body: Any) -> IdempotencyKey:
        """Two bodies that differ only in the order of keys or in white space are the same body."""
        text = _canonical(body)
        keyed = sealing.fingerprint(exact_json.dumps([route, client_key, text]))
        return IdempotencyKey(route, client_key, keyed, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    def is_of(self, stored: str) -> bool:
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
    """What the same request led to the first time."""

    session: str
    turn: str
    run: int


def find(caller: Caller, once: IdempotencyKey | None) -> EarlierResult | None:
    """What this request led to before, if it came before; IdempotencyKeyReused if the key came with another body."""
    if once is None:
        return None
    record = IdempotencyRecord.objects.filter(
        api_key_id=caller.key, route=once.route, client_key=once.client_key, created_at__gt=Now() - KEPT_FOR
    ).first()
    if record is None:
        return None
    if not once.is_of(record.digest):
        raise IdempotencyKeyReused
    return EarlierResult(record.session, record.turn, record.run)


class ConcurrentRequest(Exception):
    """Another request with the same key is being accepted: roll back and ``recall`` what became of it."""


def record(caller: Caller, once: IdempotencyKey | None, *, session: str, turn: str = "", run: int = 0) -> None:
    """Record what was accepted, inside its transaction.

    Waits for another transaction with the same key, and raises CameFirst when that one has won.
    """
    if once is None:
        return
    IdempotencyRecord.objects.filter(
        api_key_id=caller.key, route=once.route, client_key=once.client_key, created_at__lte=Now() - KEPT_FOR
    ).delete()
    try:
        with transaction.atomic():
            IdempotencyRecord.objects.create(
                api_key_id=caller.key,
                route=once.route,
                client_key=once.client_key,
                digest=once.digest,
                session=session,
                turn=turn,
                run=run,
                created_at=Now(),
            )
    except IntegrityError as error:
        raise ConcurrentRequest from error


def run_once(caller: Caller, once: IdempotencyKey | None, recalled: Callable[[EarlierResult], T], accept: Callable[[], T]) -> T:
    """What ``accept`` answers, which ``remember``s the request; ``recalled`` makes the answer if it came before."""
    # Who comes second at the same moment finds what the first has made.
    for _ in range(2):
        if (earlier := find(caller, once)) is not None:
            return recalled(earlier)
        try:
            return accept()
        except ConcurrentRequest:
            continue
    raise NotReady


def delete_old() -> int:
    """Delete records that are older than a day; how many there were."""
    return maintenance.delete_in_batches(IdempotencyRecord.objects.filter(created_at__lte=Now() - KEPT_FOR))
