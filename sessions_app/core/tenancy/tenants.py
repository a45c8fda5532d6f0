"""Tenants: making them, closing them for a while, opening them again.

They are never deleted here: that takes their data with it and is another subject.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.log import journal
from sessions_app.core.tenancy import audit, quotas
from sessions_app.models import Tenant

LONGEST_RETENTION_DAYS = 36_500


def create(slug: str, title: str = "", *, actor: str = audit.SERVER, address: str = "") -> tuple[Tenant, bool]:
    """The tenant of this name, made if it is not there, and whether it was made. One that is there keeps its title."""
    if "\0" in title or "\n" in slug:
        raise InvalidInput([Fault(("title" if "\0" in title else "slug",), "it holds a character that it must not")])
    tenant = Tenant(slug=slug, title=title)
    try:
        tenant.clean_fields()
    except ValidationError as error:
        raise InvalidInput([Fault((name,), text) for name, texts in error.message_dict.items() for text in texts]) from error
    existing = Tenant.objects.filter(slug=slug).first()
    if existing is not None:
        return existing, False
    try:
        with transaction.atomic():
            tenant.save(force_insert=True)
            audit.record(
                actor=actor,
                address=address,
                action=audit.Action.TENANT_CREATED,
                target=_named(tenant),
                tenant=tenant,
                detail=title,
            )
            # The journal's rows come last: its locks stand below those of the domain.
            journal.create_counter(tenant.pk)
    except IntegrityError:
        # Two made it at once and the constraint chose; any other violation finds nobody here.
        return Tenant.objects.get(slug=slug), False
    return tenant, True


def change(
    tenant: Tenant,
    *,
    title: str,
    allowed_agents: Sequence[str] | None,
    actor: str,
    address: str = "",
) -> bool:
    """Set what an operator may change. False: it was so already."""
    agents = None if allowed_agents is None else list(allowed_agents)
    if agents is not None and (not agents or not all(agents)):
        raise InvalidInput([Fault(("allowed_agents",), "name at least one agent, or leave it out to allow all")])
    if len(title) > 200 or "\0" in title:
        raise InvalidInput([Fault(("title",), "a title has at most 200 characters")])
    with transaction.atomic():
        row = Tenant.objects.select_for_update().get(pk=tenant.pk)
        changes = []
        if row.title != title:
            changes.append(f"title {row.title!r} -> {title!r}")
        if row.allowed_agents != agents:
            changes.append(f"agents {_agents(row.allowed_agents)} -> {_agents(agents)}")
        if changes:
            Tenant.objects.filter(pk=row.pk).update(title=title, allowed_agents=agents)
            audit.record(
                actor=actor,
                address=address,
                action=audit.Action.TENANT_CHANGED,
                target=_named(row),
                tenant=row,
                detail="; ".join(changes),
            )
    tenant.title, tenant.allowed_agents = title, agents
    return bool(changes)


def set_limits(tenant: Tenant, limits: Limits, *, session_retention_days: int | None, actor: str, address: str = "") -> bool:
    """Set how much the tenant may use and how long its sessions are kept. False: it was so already.

    They hold for requests from now on, and for runs that begin from now on.
    """
    columns = quotas.columns(limits)
    if session_retention_days is not None and not 1 <= session_retention_days <= LONGEST_RETENTION_DAYS:
        raise InvalidInput(
            [
                Fault(
                    ("session_retention_days",),
                    f"give 1 to {LONGEST_RETENTION_DAYS} days, or leave it empty to keep them for ever",
                )
            ]
        )
    with transaction.atomic():
        row = Tenant.objects.select_for_update().get(pk=tenant.pk)
        changes = quotas.differences(quotas.own_limits(row), limits)
        if row.session_retention_days != session_retention_days:
            changes.append(f"retention {_days(row.session_retention_days)} -> {_days(session_retention_days)}")
        if changes:
            Tenant.objects.filter(pk=row.pk).update(session_retention_days=session_retention_days, **columns)
            audit.record(
                actor=actor,
                address=address,
                action=audit.Action.TENANT_CHANGED,
                target=_named(row),
                tenant=row,
                detail="; ".join(changes),
            )
    tenant.refresh_from_db(fields=["session_retention_days", *columns])
    return bool(changes)


def mark_suspended(tenant: Tenant, *, actor: str, address: str = "") -> bool:
    """Refuse the tenant's keys from now on. False: it was suspended already. For ``turns.suspend_tenant``."""
    with transaction.atomic(durable=True):
        changed = Tenant.objects.filter(pk=tenant.pk, suspended_at=None).update(suspended_at=Now())
        if changed:
            audit.record(actor=actor, address=address, action=audit.Action.TENANT_SUSPENDED, target=_named(tenant), tenant=tenant)
    tenant.refresh_from_db(fields=["suspended_at"])
    return bool(changed)


def resume(tenant: Tenant, *, actor: str, address: str = "") -> bool:
    """Accept the tenant's keys again. False: it was not suspended."""
    with transaction.atomic():
        changed = Tenant.objects.filter(pk=tenant.pk).exclude(suspended_at=None).update(suspended_at=None)
        if changed:
            audit.record(actor=actor, address=address, action=audit.Action.TENANT_RESUMED, target=_named(tenant), tenant=tenant)
    tenant.refresh_from_db(fields=["suspended_at"])
    return bool(changed)


def _named(tenant: Tenant) -> str:
    return f"tenant {tenant.slug}"


def _days(days: int | None) -> str:
    return "for ever" if days is None else f"{days} days"


def _agents(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names)
