"""API keys: issuing, recognising, revoking.

A key is ``ah_`` and 32 random bytes in 43 letters. It leaves this module once, when it is issued; what is
kept is its SHA-256, which is enough for a secret of that length: there is nothing to guess from.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import NO_LIMITS, SCOPES, Caller, Limits, allowed_by_both
from sessions_app.core.base.errors import Fault, InvalidInput, NotAuthenticated
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import audit, quotas
from sessions_app.models import ApiKey, Tenant

log = logging.getLogger(__name__)

PREFIX = "ah_"
PREFIX_LENGTH = 11
"""How much of a key is stored to recognise it by: 48 of its 256 bits."""

_FORM = re.compile(r"ah_[A-Za-z0-9_-]{43}")
_USE_IS_NOTED_EVERY = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A new key. ``raw`` is the only copy there will ever be."""

    key: ApiKey
    raw: str = field(repr=False)


def looks_like_key(raw: str) -> bool:
    """Whether this could be a key at all; pure and cheap, for those who must not ask the database."""
    return _FORM.fullmatch(raw) is not None


def digest_of(raw: str) -> str:
    return hashlib.sha256(raw.encode()).hexdigest()


# Written out, because every request begins with it.
_GOOD = f"""
select k.id, coalesce(k.line, k.id), k.prefix, k.scopes, k.allowed_agents, t.id, t.allowed_agents,
 k.last_used_at is null or k.last_used_at < {{moment}}, {", ".join(f"k.{column}" for column in quotas.COLUMNS)},
 {", ".join(f"t.{column}" for column in quotas.COLUMNS)}
from sessions_app_apikey k join sessions_app_tenant t on t.id = k.tenant_id
where k.revoked_at is null and t.suspended_at is null and (k.expires_at is null or k.expires_at > {{now}})
"""
_BY_DIGEST = f"{_GOOD} and k.digest = %s"
_AMONG = f"{_GOOD} and k.id {{among}}"


def authenticate(raw: str) -> Caller:
    """Who asks with this key. Every way of being no good is the same NotAuthenticated."""
    if not looks_like_key(raw):
        raise NotAuthenticated
    row = raw_sql.row(_BY_DIGEST, (-_USE_IS_NOTED_EVERY, digest_of(raw)))
    if row is None:
        raise NotAuthenticated
    caller, unnoted = _caller(row)
    if unnoted:
        _note_use(caller.key, caller.key_prefix)
    return caller


def is_good(raw: str) -> bool:
    """Whether the key would be accepted now. Its use is not noted."""
    return raw_sql.row(_BY_DIGEST, (-_USE_IS_NOTED_EVERY, digest_of(raw))) is not None


def callers(key_ids: Collection[int]) -> dict[int, Caller]:
    """Who asks with these keys, by the key's row; those that are good no longer are left out."""
    if not key_ids:
        return {}
    found = [_caller(row)[0] for row in raw_sql.rows(_AMONG, (-_USE_IS_NOTED_EVERY, list(key_ids)))]
    return {caller.key: caller for caller in found}


def _caller(row: Sequence[Any]) -> tuple[Caller, bool]:
    """And whether its use has not been noted for a while."""
    key, line, prefix, scopes, agents_of_key, tenant, agents_of_tenant, unnoted, *limits = row
    named = _listed(agents_of_key)
    caller = Caller(
        tenant=tenant,
        key=key,
        line=line,
        key_prefix=prefix,
        scopes=frozenset(json.loads(scopes)),
        agents=allowed_by_both(_listed(agents_of_tenant), named),
        key_agents=None if named is None else frozenset(named),
        tenant_limits=quotas.with_defaults(limits[len(quotas.COLUMNS) :]),
        key_limits=Limits(*limits[: len(quotas.COLUMNS)]),
    )
    return caller, bool(unnoted)


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else json.loads(names)


_NOTE_USE = (
    "update sessions_app_apikey set last_used_at = {now} where id = %s and (last_used_at is null or last_used_at < {moment})"
)
_NOTE_USE_IF_FREE = """
update sessions_app_apikey set last_used_at = {now} where id in (select id from sessions_app_apikey
 where id = %s and (last_used_at is null or last_used_at < {moment}) for no key update skip locked)
"""


def _note_use(key: int, prefix: str) -> None:
    """Write ``last_used_at``, unless somebody did within the minute or is doing it right now.

    A convenience for operators, so it neither fails a request nor makes it wait: it passes by a row that
    is locked, and the commit does not wait for the disk.
    """
    params = (key, -_USE_IS_NOTED_EVERY)
    try:
        if connection.vendor != "postgresql":
            raw_sql.execute([Statement(_NOTE_USE, params)])
            return
        outermost = not connection.in_atomic_block
        with transaction.atomic():
            if outermost:
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL synchronous_commit TO off")
            raw_sql.execute([Statement(_NOTE_USE_IF_FREE, params)])
    except DatabaseError:
        log.warning("could not note the use of key %s", prefix, exc_info=True)


def issue(
    tenant: Tenant,
    *,
    name: str,
    scopes: Collection[str],
    expires_at: datetime | None,
    allowed_agents: Sequence[str] | None,
    actor: str,
    address: str = "",
    limits: Limits = NO_LIMITS,
) -> Issued:
    """Make a key. InvalidInput names ``name``, ``scopes``, ``expires_at``, ``allowed_agents`` or a limit."""
    columns = quotas.columns(limits)
    faults = _faults(name, scopes, expires_at, allowed_agents)
    if faults:
        raise InvalidInput(faults)
    with transaction.atomic():
        issued = _create(tenant, name, _in_order(scopes), expires_at, allowed_agents, columns)
        audit.record(
            actor=actor,
            address=address,
            action=audit.Action.KEY_ISSUED,
            target=_named(issued.key),
            tenant=tenant,
            detail=_rights(issued.key),
        )
    return issued


def set_limits(key: ApiKey, limits: Limits, *, actor: str, address: str = "") -> bool:
    """Set how much the key may use, within what its tenant may. False: it was so already."""
    columns = quotas.columns(limits)
    with transaction.atomic():
        row = ApiKey.objects.select_for_update(of=("self",), no_key=True).select_related("tenant").get(pk=key.pk)
        changes = quotas.differences(quotas.own_limits(row), limits)
        if changes:
            ApiKey.objects.filter(pk=row.pk).update(**columns)
            audit.record(
                actor=actor,
                address=address,
                action=audit.Action.KEY_CHANGED,
                target=_named(row),
                tenant=row.tenant,
                detail="; ".join(changes),
            )
    key.refresh_from_db(fields=list(columns))
    return bool(changes)


def mark_revoked(key: ApiKey, *, actor: str, address: str = "") -> bool:
    """Refuse the key from now on. False: it had been revoked already. For ``turns.revoke_key``, which also stops its runs.

    Its open streams and connections end by themselves (``key_watch``).
    """
    with transaction.atomic(durable=True):
        changed = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now())
        if changed:
            audit.record(actor=actor, address=address, action=audit.Action.KEY_REVOKED, target=_named(key), tenant=key.tenant)
    key.refresh_from_db(fields=["revoked_at"])
    return bool(changed)


def expire(key: ApiKey, *, actor: str, address: str = "") -> bool:
    """Let the key expire now: what it began runs on. False: it had ended already."""
    with transaction.atomic():
        live = ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), pk=key.pk, revoked_at=None)
        if not live.update(expires_at=Now()):
            return False
        audit.record(
            actor=actor,
            address=address,
            action=audit.Action.KEY_CHANGED,
            target=_named(key),
            tenant=key.tenant,
            detail="expires now",
        )
    key.refresh_from_db(fields=["expires_at"])
    return True


def rotate(key: ApiKey, overlap: timedelta, *, actor: str, address: str = "") -> Issued:
    """A new key with the same rights, for as long as the old one was made for; the old one ends after ``overlap``.

    The two share one account of what they use: a rotation gives no limit anew.
    InvalidInput if the old key is revoked or has expired: that would give rights back which were taken.
    """
    if overlap < timedelta(0):
        raise InvalidInput([Fault(("overlap",), "the overlap cannot be negative")])
    with transaction.atomic():
        old = ApiKey.objects.select_for_update(of=("self",)).select_related("tenant").annotate(asked_at=Now()).get(pk=key.pk)
        now: datetime = old.asked_at
        if old.revoked_at is not None:
            raise InvalidInput([Fault(("key",), "a revoked key cannot be rotated; issue a new one")])
        if old.expires_at is not None and old.expires_at <= now:
            raise InvalidInput([Fault(("key",), "an expired key cannot be rotated; issue a new one")])
        lifetime = None if old.expires_at is None else old.expires_at - old.created_at
        issued = _create(
            old.tenant,
            old.name,
            old.scopes,
            None if lifetime is None else now + lifetime,
            old.allowed_agents,
            quotas.columns(quotas.own_limits(old)),
            rotated_from=old,
        )
        ends = now + overlap
        if old.expires_at is None or ends < old.expires_at:
            ApiKey.objects.filter(pk=old.pk).update(expires_at=ends)
        audit.record(
            actor=actor,
            address=address,
            action=audit.Action.KEY_ROTATED,
            target=_named(old),
            tenant=old.tenant,
            detail=f"replaced by {issued.key.prefix}…, overlap {overlap}",
        )
        audit.record(
            actor=actor,
            address=address,
            action=audit.Action.KEY_ISSUED,
            target=_named(issued.key),
            tenant=old.tenant,
            detail=f"{_rights(issued.key)}; in place of {old.prefix}…",
        )
    key.refresh_from_db(fields=["expires_at"])
    return issued


def state_of(key: ApiKey) -> str:
    """``active``, ``expired`` or ``revoked``; its tenant's suspension aside."""
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= timezone.now():
        return "expired"
    return "active"


def _create(
    tenant: Tenant,
    name: str,
    scopes: list[str],
    expires_at: datetime | None,
    allowed_agents: Sequence[str] | None,
    limits: Mapping[str, int | None],
    rotated_from: ApiKey | None = None,
) -> Issued:
    raw = PREFIX + secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        tenant=tenant,
        name=name.strip(),
        prefix=raw[:PREFIX_LENGTH],
        digest=digest_of(raw),
        scopes=scopes,
        allowed_agents=None if allowed_agents is None else list(allowed_agents),
        expires_at=expires_at,
        rotated_from=rotated_from,
        line=None if rotated_from is None else rotated_from.line or rotated_from.pk,
        **limits,
    )
    return Issued(key, raw)


def _faults(name: str, scopes: Collection[str], expires_at: datetime | None, allowed_agents: Sequence[str] | None) -> list[Fault]:
    faults = []
    if not name.strip() or len(name) > 200 or "\0" in name:
        faults.append(Fault(("name",), "a key needs a name of 1 to 200 characters"))
    if not scopes:
        faults.append(Fault(("scopes",), "a key needs at least one scope"))
    known = ", ".join(SCOPES)
    faults.extend(
        Fault(("scopes",), f"there is no scope {scope!r}; there are {known}") for scope in scopes if scope not in SCOPES
    )
    if expires_at is not None and expires_at <= timezone.now():
        faults.append(Fault(("expires_at",), "a key must expire in the future"))
    if allowed_agents is not None and (not allowed_agents or not all(allowed_agents)):
        faults.append(Fault(("allowed_agents",), "name at least one agent, or leave it out to allow all"))
    return faults


def _in_order(scopes: Collection[str]) -> list[str]:
    return [scope for scope in SCOPES if scope in scopes]


def _named(key: ApiKey) -> str:
    return f"key {key.prefix}… ({key.name})"


def shown_scopes(key: ApiKey) -> list[str]:
    """The key's scopes as operators see them, without stored ones that mean nothing any more."""
    return _in_order(key.scopes)


def _rights(key: ApiKey) -> str:
    agents = "all agents" if key.allowed_agents is None else "agents " + ", ".join(key.allowed_agents)
    until = "no expiry" if key.expires_at is None else f"until {key.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"scopes {', '.join(shown_scopes(key))}; {agents}; {until}"
