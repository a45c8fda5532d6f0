"""Audit records of what clients read, delete and mint with keys.

A read is recorded before its content is shown, once per thing, key and hour: its unique id is derived from these, so that all
processes together write one row. A process remembers what it has recorded, and asks the database once per read of that kind.
"""

from __future__ import annotations

import logging
import uuid
from functools import partial

from django.conf import settings
from django.db import InternalError, OperationalError, transaction
from django.utils import timezone

from sessions_app.core.base import client_address
from sessions_app.core.base.caller import Caller
from sessions_app.core.tenancy import audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import ApiKey

log = logging.getLogger(__name__)

_NAMESPACE = uuid.UUID("9a3bb1d6-9d0c-4a67-93ac-1f1d6f2f6c1e")
_Fact = tuple[Action, str, int, bool, int]
_MOST_KNOWN = 50_000
_MOST_MEMBERS = 10_000
_known: set[_Fact] = set()
_members: dict[int, str] = {}


def actor_of(caller: Caller) -> str:
    """Who acts: a key, or the member of the tenant who has a short-lived token of the console."""
    if caller.token:
        if caller.key not in _members:
            while len(_members) >= _MOST_MEMBERS:
                _members.pop(next(iter(_members)), None)
            name = ApiKey.objects.filter(pk=caller.key).values_list("member__username", flat=True).first()
            _members[caller.key] = "" if name is None else audit.member(name)
        if _members[caller.key]:
            return _members[caller.key]
    return f"key:{caller.key_prefix}"


def by(caller: Caller) -> dict[str, str]:
    """The actor and address of a record, as arguments of functions that write one."""
    return {"actor": actor_of(caller), "address": client_address.current.get()}


def read(caller: Caller, action: Action, target: str) -> None:
    """Record that the caller reads something, at most once an hour. Call it before the content is read.

    While the database takes no writes, clients still read: the log names the read, and the next one is recorded.
    """
    if not settings.AGENTHOST_AUDIT_API_READS:
        return
    if _fact(caller, action, target) in _known:
        return
    try:
        with transaction.atomic():
            once_an_hour(caller, action, target, _how(caller, "over the API; further reads within the hour are not recorded"))
    except (OperationalError, InternalError) as error:
        log.error(
            "audit_read_not_recorded action=%s target=%s key=%s: %s", action, target, caller.key_prefix, type(error).__name__
        )


def once_an_hour(caller: Caller, action: Action, target: str, detail: str) -> None:
    """Record what a client does often, once per thing, key and hour, in the transaction that is open."""
    fact = _fact(caller, action, target)
    if fact in _known:
        return
    audit.record_once(
        uuid.uuid5(_NAMESPACE, " ".join(map(str, (caller.tenant, *fact)))),
        actor=actor_of(caller),
        action=action,
        target=target,
        tenant_id=caller.tenant,
        address=client_address.current.get(),
        detail=detail,
    )
    # Only what is stored may be remembered.
    transaction.on_commit(partial(_remember, fact))


def _fact(caller: Caller, action: Action, target: str) -> _Fact:
    return action, target, caller.key, bool(caller.token), int(timezone.now().timestamp() // 3600)


def _remember(fact: _Fact) -> None:
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known.add(fact)


def record(caller: Caller, action: Action, target: str, detail: str = "") -> None:
    """Record something else that a caller does, in the transaction of its change."""
    audit.record(
        actor=actor_of(caller),
        action=action,
        target=target,
        tenant_id=caller.tenant,
        address=client_address.current.get(),
        detail=_how(caller, detail),
    )


def _how(caller: Caller, detail: str) -> str:
    return "; ".join(filter(None, ("with a short-lived token" if caller.token else "", detail)))


def forget_known() -> None:
    """For tests: clear the caches, as in a new process."""
    _known.clear()
    _members.clear()
