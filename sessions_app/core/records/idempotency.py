"""Idempotency keys: a request that is sent several times takes effect once.

The record of a request is written in the transaction that accepts it, so it exists exactly if the request took effect. A
repeated request gets the result of the first one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from django.db import IntegrityError
from django.db.models.functions import Now

from agents_app import exact_json
from sessions_app.core.base import maintenance, raw_sql, sealing, secret_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import IdempotencyKeyReused, NotReady
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import IdempotencyRecord

T = TypeVar("T")

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of a request. ``client_key``: the key as sent, ``digest``: a digest of the body.

    The digest is keyed, because bodies contain secrets that could otherwise be guessed from the table. ``plain_digest`` is
    the form of an older release; it recognises a retry across an upgrade, ``former_digests`` across a change of the secret
    key.
    """

    route: str
    client_key: str
    digest: str
    plain_digest: str = field(repr=False)
    former_digests: tuple[str, ...] = field(default=(), repr=False)

    @staticmethod
    def of(route: str, client_key: str, body: Any) -> IdempotencyKey:
        """The key of a request. Bodies that differ only in the order of members or in white space are the same."""
        text = _canonical(body)
        whole = exact_json.dumps([route, client_key, text])
        former = tuple(sealing.fingerprint(whole, key) for key in secret_keys.older())
        plain = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return IdempotencyKey(route, client_key, sealing.fingerprint(whole), plain, former)

    def matches(self, stored: str) -> bool:
        """Whether a stored digest is of this body."""
        return stored in (self.digest, self.plain_digest, *self.former_digests)


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
    queries = find_queries(caller, idempotency_key)
    return earlier(idempotency_key, [raw_sql.rows(query.sql, query.params) for query in queries])


_OF_KEY = "api_key_id = %s and route = %s and client_key = %s and created_at"
_FIND = f"select digest, session, turn, run from sessions_app_idempotencyrecord where {_OF_KEY} > {{moment}}"
_DELETE_OLD = f"delete from sessions_app_idempotencyrecord where {_OF_KEY} <= {{moment}}"
_INSERT = """
insert into sessions_app_idempotencyrecord (api_key_id, route, client_key, digest, session, turn, run, created_at)
values (%s, %s, %s, %s, %s, %s, %s, {now})
"""


def _of(caller: Caller, key: IdempotencyKey) -> tuple[int, str, str]:
    return (caller.key, key.route, key.client_key)


def find_queries(caller: Caller, idempotency_key: IdempotencyKey | None) -> list[Statement]:
    """The queries of ``find``, for a caller that sends others with them; ``earlier`` reads their rows."""
    if idempotency_key is None:
        return []
    return [Statement(_FIND, (*_of(caller, idempotency_key), -KEPT_FOR.total_seconds()))]


def earlier(idempotency_key: IdempotencyKey | None, found: Sequence[Rows]) -> EarlierResult | None:
    """The result of ``find`` from the rows of its queries."""
    if idempotency_key is None or not found[0]:
        return None
    ((digest, session, turn, run),) = found[0]
    if not idempotency_key.matches(digest):
        raise IdempotencyKeyReused
    return EarlierResult(session, turn, run)


def record(
    caller: Caller, idempotency_key: IdempotencyKey | None, *, session: str, turn: str = "", run: int = 0
) -> list[Statement]:
    """The statements that record an accepted request, for the end of its transaction.

    They wait for a parallel transaction with the same key, and fail if that one commits (``run_once``).
    """
    if idempotency_key is None:
        return []
    key = _of(caller, idempotency_key)
    return [
        Statement(_DELETE_OLD, (*key, -KEPT_FOR.total_seconds())),
        Statement(_INSERT, (*key, idempotency_key.digest, session, turn, run)),
    ]


def _is_concurrent(error: IntegrityError) -> bool:
    """Whether a parallel request with the same key was accepted first."""
    return "idempotency_key_once" in str(error) or "sessions_app_idempotencyrecord" in str(error)


def run_once(
    caller: Caller, idempotency_key: IdempotencyKey | None, repeated: Callable[[EarlierResult], T], accept: Callable[[], T]
) -> T:
    """The result of ``accept``, which must ``record`` the request; for a repetition, ``repeated`` of the earlier result."""
    # Of two parallel requests, the second finds the result of the first in its second attempt.
    for _ in range(2):
        if (found := find(caller, idempotency_key)) is not None:
            return repeated(found)
        try:
            return accept()
        except IntegrityError as error:
            if not _is_concurrent(error):
                raise
    raise NotReady


def delete_old() -> int:
    """Delete records that are older than a day; returns their number."""
    return maintenance.delete_in_batches(IdempotencyRecord.objects.filter(created_at__lte=Now() - KEPT_FOR))
