"""Short-lived tokens: minting, authenticating, revoking.

A server mints a token with its key, for one session, and gives it to a browser, which so never has a key. A member of a tenant
gets tokens for the console. A token is ``aht_`` and 32 random bytes in 43 characters; only its SHA-256 is stored. It has a part
of its key's rights and ends with the key, at the latest after an hour.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from agents_app import exact_json
from sessions_app.core.base import client_address, maintenance, raw_sql
from sessions_app.core.base.caller import READ, SCOPES, WRITE, Caller, allowed_by_both
from sessions_app.core.base.errors import Fault, InvalidInput, NotAuthenticated, NotPossible, TokenLimited, TokenNotFound
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import access, api_audit, audit, keys, known_callers, origins
from sessions_app.models import AccessToken, ApiKey, Session, Tenant

log = logging.getLogger(__name__)

PREFIX = "aht_"
_FORM = re.compile(r"aht_[A-Za-z0-9_-]{43}")
SHORTEST, LONGEST, USUAL = 10, 3600, 600
"""Seconds for which a token is valid."""
OF_SESSIONS = ("meta:read", READ, WRITE)
"""The scopes that a token can have."""
_KEPT = timedelta(days=1)
"""How long rows of ended tokens are kept."""


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token. ``raw`` is the token itself, which is not stored; ``session`` is empty for a member's token."""

    public_id: str
    session: str
    scopes: list[str]
    origin: str
    expires_at: datetime
    raw: str = field(repr=False, default="")


def looks_like_token(raw: str) -> bool:
    """Whether this has the form of a token; pure and cheap, for checks without the database."""
    return _FORM.fullmatch(raw) is not None


# --- authenticating ------------------------------------------------------------------------------

_SOURCE = """sessions_app_accesstoken o
 join sessions_app_apikey k on k.id = o.key_id join sessions_app_tenant t on t.id = k.tenant_id
 left join sessions_app_session s on s.id = o.session and s.deleted_at is null left join auth_user u on u.id = o.member_id"""
_IS_GOOD = f"""o.revoked_at is null and o.expires_at > {{now}} and (o.session is null or s.id is not null)
 and (o.member_id is null or u.is_active) and {keys.IS_GOOD}"""
_GOOD = f"select o.id, o.scopes, o.session, s.agent_name, o.origin, {keys.SELECTED} from {_SOURCE} where {_IS_GOOD}"
_BY_DIGEST = f"{_GOOD} and o.digest = %s"
_AMONG = f"{_GOOD} and o.id {{among}}"
_OWN = 5
"""Columns of a row before those of its key."""
# A token's own row changes only when it is revoked.
_UNCHANGED = f"""
select journal_refuse('0:key') where not exists (
 select 1 from {_SOURCE} where o.id = %s and {{version_of_key}} = %s and {_IS_GOOD})
"""


def authenticate(raw: str) -> Caller:
    """The caller of this token, as cheap as of a key. Any token that is not valid gives the same NotAuthenticated."""
    digest = keys.digest_of(raw)
    if (known := known_callers.get(digest)) is not None:
        return known
    row = raw_sql.row(_BY_DIGEST, (keys.SINCE_LAST_USE, digest))
    if row is None:
        known_callers.forget(digest)
        raise NotAuthenticated
    caller, update_due = _caller(row)
    if update_due:
        keys.update_last_used(caller.key, caller.key_prefix)
    else:
        version = row[_OWN + keys.VERSION]
        known_callers.remember(digest, caller, Statement(_UNCHANGED, (caller.token, version), is_check=True))
    return caller


def is_good(raw: str) -> bool:
    """Whether the token would be accepted now. Does not count as a use of its key."""
    return raw_sql.row(_BY_DIGEST, (keys.SINCE_LAST_USE, keys.digest_of(raw))) is not None


def callers(rows: Collection[int]) -> dict[int, Caller]:
    """The callers of these tokens, by row number; tokens that are not valid any more are left out."""
    if not rows:
        return {}
    found = [_caller(row)[0] for row in raw_sql.rows(_AMONG, (keys.SINCE_LAST_USE, list(rows)))]
    return {caller.token: caller for caller in found}


def _caller(row: Sequence[Any]) -> tuple[Caller, bool]:
    token, scopes, session, agent, origin = row[:_OWN]
    of_key, update_due = keys.caller_of(row[_OWN:])
    # What the key lost since then, the token has lost as well.
    allowed = frozenset(scope for scope in exact_json.loads(scopes) if of_key.may(scope))
    caller = replace(of_key, token=token, session=session, origin=origin, scopes=allowed)
    if session is not None:
        of_session = frozenset({agent})
        caller = replace(
            caller,
            agents=allowed_by_both(caller.agents, of_session),
            key_agents=allowed_by_both(caller.key_agents, of_session),
        )
    return caller, update_due


# --- minting -------------------------------------------------------------------------------------


def mint(
    caller: Caller, session: Session, *, scopes: Sequence[str] | None = None, seconds: int = USUAL, origin: str = ""
) -> Minted:
    """Mint a token for one session of the caller. ``scopes``: by default those for sessions that the key has.

    ScopeMissing if the key lacks one of them; TokenLimited if the caller came with a token itself.
    """
    _require_key(caller)
    wanted = [scope for scope in (READ, WRITE) if caller.may(scope)] if scopes is None else scopes
    _check(wanted, seconds, origin)
    for scope in wanted:
        caller.require(scope)
    return _mint(caller, None, session, wanted, seconds, origin)


def mint_for_member(
    tenant: Tenant,
    member: AbstractBaseUser,
    *,
    scopes: Collection[str],
    origin: str,
    seconds: int = USUAL,
    session: Session | None = None,
) -> Minted:
    """Mint a token with which a member of the tenant uses its sessions from a page of this origin.

    ``session``: only this one; None: all of the tenant. ``scopes``: what the member's role allows, which the caller has
    checked; a member who leaves loses the tokens by ``revoke_of_member``. NotPossible if the operator has revoked the
    member's key or has suspended the tenant.
    """
    _check(scopes, seconds, origin)
    if not origin:
        raise InvalidInput([Fault(("origin",), "a member's token needs an origin")])
    key = _key_of_member(tenant, member)
    if key.revoked_at is not None:
        raise NotPossible("the operator has revoked this member's key")
    return _mint(Caller(tenant.pk, key.pk, key.prefix, frozenset(scopes)), member, session, list(scopes), seconds, origin)


def _key_of_member(tenant: Tenant, member: AbstractBaseUser) -> ApiKey:
    """The key under which a member acts. Nobody has it: it counts use, and revoking it ends what the member does."""
    found = ApiKey.objects.filter(tenant=tenant, member_id=member.pk).first()
    if found is not None:
        return found
    unknown = keys.PREFIX + secrets.token_urlsafe(32)
    name = f"member {member.get_username()}"[:200]
    try:
        with transaction.atomic():
            made = ApiKey.objects.create(
                tenant=tenant,
                member_id=member.pk,
                name=name,
                prefix=unknown[: keys.PREFIX_LENGTH],
                digest=keys.digest_of(unknown),
                scopes=list(OF_SESSIONS),
            )
            audit.record(
                actor=audit.member(member.get_username()),
                address=client_address.current.get(),
                action=audit.Action.KEY_ISSUED,
                target=f"key {made.prefix}… ({made.name})",
                tenant=tenant,
                detail="for short-lived tokens of this member",
            )
            return made
    except IntegrityError:
        # Another request of the member made it.
        return ApiKey.objects.get(tenant=tenant, member_id=member.pk)


def _check(scopes: Collection[str], seconds: int, origin: str) -> None:
    known = ", ".join(OF_SESSIONS)
    faults = [
        Fault(("scopes",), f"a token cannot have the scope {scope!r}; it can have {known}")
        for scope in scopes
        if scope not in OF_SESSIONS
    ]
    if not scopes:
        faults.append(Fault(("scopes",), "a token needs at least one scope"))
    if not SHORTEST <= seconds <= LONGEST:
        faults.append(Fault(("seconds",), f"must be from {SHORTEST} to {LONGEST}"))
    if origin and (wrong := origins.fault(origin)) is not None:
        faults.append(Fault(("origin",), wrong))
    if faults:
        raise InvalidInput(faults)


def _mint(
    caller: Caller,
    member: AbstractBaseUser | None,
    session: Session | None,
    scopes: Sequence[str],
    seconds: int,
    origin: str,
) -> Minted:
    most = settings.AGENTHOST_TOKENS_PER_KEY
    if (
        AccessToken.objects.filter(key_id=caller.key, expires_at__gt=Now(), revoked_at=None)
        .values("pk")[most - 1 : most]
        .exists()
    ):
        raise NotPossible(f"this key has {most:,} live tokens, which is the limit (AGENTHOST_TOKENS_PER_KEY); revoke some")
    raw = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        row = AccessToken.objects.create(
            tenant_id=caller.tenant,
            key_id=caller.key,
            member_id=None if member is None else member.pk,
            public_id=new_id("tok"),
            digest=keys.digest_of(raw),
            session=None if session is None else session.pk,
            origin=origin,
            scopes=[scope for scope in SCOPES if scope in scopes],
            expires_at=Now() + timedelta(seconds=seconds),
        )
        row.refresh_from_db(fields=["expires_at"])
        # A member acts with the token itself, and is the actor of what is done with it.
        actor = caller if member is None else replace(caller, token=row.pk)
        target = "sessions" if session is None else f"session {session.public_id}"
        api_audit.once_an_hour(actor, audit.Action.TOKENS_MINTED, target, _described(row))
    log.info("token_minted id=%s key=%s seconds=%s", row.public_id, caller.key, seconds)
    return replace(_shown(row, "" if session is None else session.public_id), raw=raw)


def _described(row: AccessToken) -> str:
    """For the audit."""
    origin = f"for pages of {row.origin}" if row.origin else ""
    return "; ".join(filter(None, (", ".join(row.scopes), origin, "further tokens within the hour are not recorded")))


def _shown(row: AccessToken, session: str) -> Minted:
    return Minted(row.public_id, session, list(row.scopes), row.origin, row.expires_at)


def _require_key(caller: Caller) -> None:
    if caller.token:
        raise TokenLimited("mint or manage tokens")


# --- listing and revoking --------------------------------------------------------------------------


def live(caller: Caller, most: int) -> list[Minted]:
    """The valid tokens that the caller's key has minted, those that end last first."""
    _require_key(caller)
    live = AccessToken.objects.filter(key_id=caller.key, session__isnull=False, expires_at__gt=Now(), revoked_at=None)
    rows = list(live.order_by("-expires_at", "-pk")[:most])
    named = dict(access.visible(caller).filter(pk__in={row.session for row in rows}).values_list("pk", "public_id"))
    return [_shown(row, named[row.session]) for row in rows if row.session in named]


def revoke(caller: Caller, public_id: str) -> None:
    """End a token that the caller's key, or one of its rotation line, has minted. TokenNotFound if there is none.

    A caller that came with a token may end that one.
    """
    rows = AccessToken.objects.filter(tenant_id=caller.tenant, public_id=public_id, revoked_at=None, expires_at__gt=Now())
    rows = rows.filter(pk=caller.token) if caller.token else rows.filter(key_id__in=_line(caller))
    if "\0" in public_id or not rows.update(revoked_at=Now()):
        raise TokenNotFound


def _line(caller: Caller) -> Iterable[int]:
    return [caller.key, caller.line, *ApiKey.objects.filter(line=caller.line).values_list("pk", flat=True)]


def revoke_of_member(tenant: Tenant, member: AbstractBaseUser) -> int:
    """End all tokens of a member, who has left the tenant or has fewer rights now; returns their number."""
    return AccessToken.objects.filter(tenant=tenant, member_id=member.pk, revoked_at=None).update(revoked_at=Now())


def delete_old() -> int:
    """Delete the rows of tokens that ended more than a day ago; returns their number."""
    return maintenance.delete_in_batches(AccessToken.objects.filter(expires_at__lt=Now() - _KEPT))
