"""API keys: issuing, authenticating, rotating, revoking.

A key is ``ah_`` and 32 random bytes in 43 characters. It is returned only when it is issued; its SHA-256 is stored, which
is safe for a random secret of this length.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import NO_LIMITS, SCOPES, Caller, Limits, allowed_by_both
from sessions_app.core.base.errors import Fault, InvalidInput, KeyNotFound, NotAuthenticated
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import audit, key_addresses, known_callers, quotas, refused_keys
from sessions_app.models import ApiKey, Tenant

log = logging.getLogger(__name__)

PREFIX = "ah_"
PREFIX_LENGTH = 11
"""The length of the stored prefix, which identifies a key for people: 48 of its 256 bits."""

_FORM = re.compile(r"ah_[A-Za-z0-9_-]{43}")
_LAST_USED_SECONDS = 60.0
_LAST = datetime.max.replace(microsecond=0, tzinfo=UTC)
"""The last time at which a key can expire."""
"""``last_used_at`` is updated at most this often."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A new key. ``raw`` is the key itself, which is not stored."""

    key: ApiKey
    raw: str = field(repr=False)


def looks_like_key(raw: str) -> bool:
    """Whether this has the form of a key; pure and cheap, for checks without the database."""
    return _FORM.fullmatch(raw) is not None


def digest_of(raw: str) -> str:
    return hashlib.sha256(raw.encode()).hexdigest()


# Hand-written, because every request begins with it.
SELECTED = f"""k.id, coalesce(k.line, k.id), k.prefix, k.scopes, k.allowed_agents, t.id, t.allowed_agents,
 k.last_used_at is null or k.last_used_at < {{moment}}, {{version_of_key}},
 {", ".join(f"k.{column}" for column in quotas.COLUMNS)},
 {", ".join(f"t.{column}" for column in quotas.COLUMNS)}"""
"""The columns that ``caller_of`` reads, of a key ``k`` and its tenant ``t``. One parameter: see ``SINCE_LAST_USE``."""
IS_GOOD = "k.revoked_at is null and t.suspended_at is null and (k.expires_at is null or k.expires_at > {now})"
SINCE_LAST_USE = -_LAST_USED_SECONDS
_GOOD = f"select {SELECTED} from sessions_app_apikey k join sessions_app_tenant t on t.id = k.tenant_id where {IS_GOOD}"
_BY_DIGEST = f"{_GOOD} and k.digest = %s"
_AMONG = f"{_GOOD} and k.id {{among}}"


def authenticate(raw: str) -> Caller:
    """The caller of this key. An unknown, revoked or expired key gives the same NotAuthenticated."""
    if not looks_like_key(raw):
        raise NotAuthenticated
    digest = digest_of(raw)
    if (known := known_callers.get(digest)) is not None and key_addresses.is_known(known.key):
        return known
    row = raw_sql.row(_BY_DIGEST, (SINCE_LAST_USE, digest))
    if row is None:
        known_callers.forget(digest)
        refused_keys.note(digest)
        raise NotAuthenticated
    caller, update_due = caller_of(row)
    if not key_addresses.is_known(caller.key):
        key_addresses.note(caller.tenant, caller.key, caller.key_prefix)
    if update_due:
        update_last_used(caller.key, caller.key_prefix)
    else:
        known_callers.remember(digest, caller, Statement(_UNCHANGED, (caller.key, row[VERSION]), is_check=True))
    return caller


# Of two rows with the same version no column differs, so everything that was read of them is true.
_UNCHANGED = f"""
select journal_refuse('0:key') where not exists (
 select 1 from sessions_app_apikey k join sessions_app_tenant t on t.id = k.tenant_id where k.id = %s
 and {{version_of_key}} = %s and {IS_GOOD})
"""
VERSION = 8
"""The place of the version in a row of ``SELECTED``."""


def is_good(raw: str) -> bool:
    """Whether the key would be accepted now. Does not count as a use of the key."""
    return raw_sql.row(_BY_DIGEST, (SINCE_LAST_USE, digest_of(raw))) is not None


def callers(key_ids: Collection[int]) -> dict[int, Caller]:
    """The callers of these keys, by key row number; keys that are not valid any more are left out."""
    if not key_ids:
        return {}
    found = [caller_of(row)[0] for row in raw_sql.rows(_AMONG, (SINCE_LAST_USE, list(key_ids)))]
    return {caller.key: caller for caller in found}


def caller_of(row: Sequence[Any]) -> tuple[Caller, bool]:
    """The caller, and whether ``last_used_at`` is due for an update."""
    key, line, prefix, scopes, agents_of_key, tenant, agents_of_tenant, update_due, _, *limits = row
    key_agents = _parsed(agents_of_key)
    caller = Caller(
        tenant=tenant,
        key=key,
        line=line,
        key_prefix=prefix,
        scopes=frozenset(json.loads(scopes)),
        agents=allowed_by_both(_parsed(agents_of_tenant), key_agents),
        key_agents=None if key_agents is None else frozenset(key_agents),
        tenant_limits=quotas.with_defaults(limits[len(quotas.COLUMNS) :]),
        key_limits=Limits(*limits[: len(quotas.COLUMNS)]),
    )
    return caller, bool(update_due)


def _parsed(names: str | None) -> list[str] | None:
    return None if names is None else json.loads(names)


_UPDATE_LAST_USED = (
    "update sessions_app_apikey set last_used_at = {now} where id = %s and (last_used_at is null or last_used_at < {moment})"
)
_UPDATE_LAST_USED_IF_UNLOCKED = """
update sessions_app_apikey set last_used_at = {now} where id in (select id from sessions_app_apikey
 where id = %s and (last_used_at is null or last_used_at < {moment}) for no key update skip locked)
"""


def update_last_used(key: int, prefix: str) -> None:
    """Write ``last_used_at``, at most once a minute.

    This is a convenience for operators, so it neither fails nor delays a request: it skips a locked row, and its commit does
    not wait for the disk.
    """
    params = (key, SINCE_LAST_USE)
    try:
        if connection.vendor != "postgresql":
            raw_sql.execute([Statement(_UPDATE_LAST_USED, params)])
            return
        outermost = not connection.in_atomic_block
        with transaction.atomic():
            if outermost:
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL synchronous_commit TO off")
            raw_sql.execute([Statement(_UPDATE_LAST_USED_IF_UNLOCKED, params)])
    except DatabaseError:
        log.warning("last_used_not_stored key=%s", prefix, exc_info=True)


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
    """Issue a key. The paths of InvalidInput are ``name``, ``scopes``, ``expires_at``, ``allowed_agents`` or a limit."""
    columns = quotas.columns(limits)
    faults = _faults(name, scopes, expires_at, allowed_agents)
    if faults:
        raise InvalidInput(faults)
    with transaction.atomic():
        issued = _create(tenant, name, _in_order(scopes), expires_at, allowed_agents, columns)
        _record(audit.Action.KEY_ISSUED, issued.key, actor, address, _rights(issued.key))
    return issued


def set_limits(key: ApiKey, limits: Limits, *, actor: str, address: str = "") -> bool:
    """Set a key's own limits, which apply in addition to its tenant's; False if nothing changed."""
    columns = quotas.columns(limits)
    with transaction.atomic():
        row = ApiKey.objects.select_for_update(of=("self",), no_key=True).select_related("tenant").get(pk=key.pk)
        changes = quotas.differences(quotas.own_limits(row), limits)
        if changes:
            ApiKey.objects.filter(pk=row.pk).update(**columns)
            _record(audit.Action.KEY_CHANGED, row, actor, address, "; ".join(changes))
    key.refresh_from_db(fields=list(columns))
    return bool(changes)


def mark_revoked(key: ApiKey, *, actor: str, address: str = "") -> bool:
    """Refuse the key from now on; False if it was revoked already. For ``turns.revoke_key``, which also stops its runs.

    ``key_watch`` closes its open streams and connections.
    """
    with transaction.atomic(durable=True):
        changed = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now())
        if changed:
            _record(audit.Action.KEY_REVOKED, key, actor, address)
    key.refresh_from_db(fields=["revoked_at"])
    return bool(changed)


def expire(key: ApiKey, *, actor: str, address: str = "") -> bool:
    """Let the key expire now; its runs continue. False if it was revoked or had expired already."""
    with transaction.atomic():
        if not ApiKey.objects.filter(active(), pk=key.pk).update(expires_at=Now()):
            return False
        _record(audit.Action.KEY_CHANGED, key, actor, address, "expires now")
    key.refresh_from_db(fields=["expires_at"])
    return True


def end_after_rotation(key: ApiKey, now: datetime) -> datetime | None:
    """When the key that replaces this one expires: it has the same lifetime."""
    return None if key.expires_at is None else _after(now, key.expires_at - key.created_at)


def rotate(key: ApiKey, overlap: timedelta, *, actor: str, address: str = "") -> Issued:
    """Issue a key with the same rights and lifetime as the old one, which expires after ``overlap``.

    The usage of both is counted together, so a rotation does not reset limits. InvalidInput if the old key is revoked or
    expired: a rotation must not restore rights that were withdrawn.
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
        if old.member_id is not None:
            raise InvalidInput([Fault(("key",), "the key of a member cannot be rotated: nobody has it")])
        issued = _create(
            old.tenant,
            old.name,
            old.scopes,
            end_after_rotation(old, now),
            old.allowed_agents,
            quotas.columns(quotas.own_limits(old)),
            rotated_from=old,
        )
        ends = _after(now, overlap)
        if old.expires_at is None or ends < old.expires_at:
            ApiKey.objects.filter(pk=old.pk).update(expires_at=ends)
        _record(audit.Action.KEY_ROTATED, old, actor, address, f"replaced by {issued.key.prefix}…, overlap {overlap}")
        _record(audit.Action.KEY_ISSUED, issued.key, actor, address, f"{_rights(issued.key)}; replaces {old.prefix}…")
    key.refresh_from_db(fields=["expires_at"])
    return issued


# --- for lists ---------------------------------------------------------------------------------------

STATES = ("active", "expired", "revoked")


def of_tenant(tenant: int, *, state: str = "", before: int | None = None, most: int = 50) -> list[ApiKey]:
    """The tenant's keys, the newest first, without those under which members act. ``before``: only smaller row numbers."""
    rows = in_state(ApiKey.objects.filter(tenant_id=tenant, member=None), state).order_by("-pk")
    return list((rows if before is None else rows.filter(pk__lt=before))[:most])


def find(tenant: int, number: int) -> ApiKey:
    """KeyNotFound if the tenant has no key with this row number."""
    found = ApiKey.objects.select_related("tenant", "rotated_from").filter(tenant_id=tenant, member=None, pk=number).first()
    if found is None:
        raise KeyNotFound
    return found


def in_state(rows: QuerySet[ApiKey], state: str) -> QuerySet[ApiKey]:
    """Those of the rows that are in this state; all rows for a state that does not exist."""
    match state:
        case "active":
            return rows.filter(active())
        case "expired":
            return rows.filter(revoked_at=None, expires_at__lte=Now())
        case "revoked":
            return rows.exclude(revoked_at=None)
        case _:
            return rows


def active(path: str = "") -> Q:
    """The condition that a key is active, as ``state_of`` shows it. ``path``: to the key in a query, such as ``keys__``."""
    unexpired = Q(**{f"{path}expires_at": None}) | Q(**{f"{path}expires_at__gt": Now()})
    return Q(**{f"{path}revoked_at": None}) & unexpired


def state_of(key: ApiKey) -> str:
    """``active``, ``expired`` or ``revoked``; a suspension of its tenant is ignored."""
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


def _after(moment: datetime, span: timedelta) -> datetime:
    """The time after this span; the last time that there is, if it would be later."""
    return _LAST if span >= _LAST - moment else moment + span


def _faults(name: str, scopes: Collection[str], expires_at: datetime | None, allowed_agents: Sequence[str] | None) -> list[Fault]:
    faults = []
    if not name.strip() or len(name) > 200 or "\0" in name:
        faults.append(Fault(("name",), "a key needs a name of 1 to 200 characters, without U+0000"))
    if not scopes:
        faults.append(Fault(("scopes",), "a key needs at least one scope"))
    known = ", ".join(SCOPES)
    faults.extend(
        Fault(("scopes",), f"there is no scope {scope!r}; the scopes are {known}") for scope in scopes if scope not in SCOPES
    )
    if expires_at is not None and expires_at <= timezone.now():
        faults.append(Fault(("expires_at",), "a key must expire in the future"))
    if expires_at is not None and expires_at > _LAST:
        faults.append(Fault(("expires_at",), "a key must expire in the year 9999 UTC or before; leave it out for no expiry"))
    if allowed_agents is not None and (not allowed_agents or not all(allowed_agents)):
        faults.append(Fault(("allowed_agents",), "name at least one agent, or leave it out to allow all"))
    return faults


def _in_order(scopes: Collection[str]) -> list[str]:
    return [scope for scope in SCOPES if scope in scopes]


def _record(action: audit.Action, key: ApiKey, actor: str, address: str, detail: str = "") -> None:
    target = f"key {key.prefix}… ({key.name})"
    audit.record(actor=actor, address=address, action=action, target=target, tenant=key.tenant, detail=detail)


def shown_scopes(key: ApiKey) -> list[str]:
    """The key's scopes as shown to operators, without stored scopes that no longer exist."""
    return _in_order(key.scopes)


def _rights(key: ApiKey) -> str:
    agents = "all agents" if key.allowed_agents is None else "agents " + ", ".join(key.allowed_agents)
    until = "no expiry" if key.expires_at is None else f"until {key.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"scopes {', '.join(shown_scopes(key))}; {agents}; {until}"
