"""Creating, changing, suspending and resuming tenants. sessions/tenant_deletion.py deletes what
is stored of a tenant; its row stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.log import journal
from sessions_app.core.tenancy import audit, quotas
from sessions_app.models import Tenant, TenantDeletion

LONGEST_RETENTION_DAYS = 36_500


def create(slug: str, title: str = "", *, actor: str = audit.SERVER, address: str = "") -> tuple[Tenant, bool]:
    """The tenant with this slug, created if it does not exist, and whether it was created. An existing one keeps its title."""
    if "\0" in title:
        raise InvalidInput([Fault(("title",), "the title contains U+0000")])
    if "\n" in slug:
        raise InvalidInput([Fault(("slug",), "the slug contains a line break")])
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
            _record(audit.Action.TENANT_CREATED, tenant, actor, address, title)
            # The journal's rows come last: its locks are always taken after those of the domain.
            journal.create_counter(tenant.pk)
    except IntegrityError:
        # A parallel call created it first. After any other violation this lookup fails.
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
    """Set a tenant's title and allowed agents; False if nothing changed."""
    agents = None if allowed_agents is None else list(allowed_agents)
    if agents is not None and (not agents or not all(agents)):
        raise InvalidInput([Fault(("allowed_agents",), "name at least one agent, or leave it out to allow all")])
    if len(title) > 200 or "\0" in title:
        raise InvalidInput([Fault(("title",), "a title has at most 200 characters, without U+0000")])

    def changes(row: Tenant) -> list[str]:
        found = [] if row.title == title else [f"title {row.title!r} -> {title!r}"]
        if row.allowed_agents != agents:
            found.append(f"agents {_agents(row.allowed_agents)} -> {_agents(agents)}")
        return found

    return _update(tenant, {"title": title, "allowed_agents": agents}, changes, actor, address)


def set_limits(tenant: Tenant, limits: Limits, *, session_retention_days: int | None, actor: str, address: str = "") -> bool:
    """Set a tenant's limits and session retention; False if nothing changed.

    They apply to requests and runs that begin from now on.
    """
    columns = quotas.columns(limits)
    if session_retention_days is not None and not 1 <= session_retention_days <= LONGEST_RETENTION_DAYS:
        raise InvalidInput(
            [
                Fault(
                    ("session_retention_days",),
                    f"give 1 to {LONGEST_RETENTION_DAYS} days, or leave it empty to keep sessions forever",
                )
            ]
        )

    def changes(row: Tenant) -> list[str]:
        found = quotas.differences(quotas.own_limits(row), limits)
        if row.session_retention_days != session_retention_days:
            found.append(f"retention {_days(row.session_retention_days)} -> {_days(session_retention_days)}")
        return found

    return _update(tenant, {"session_retention_days": session_retention_days, **columns}, changes, actor, address)


def mark_suspended(tenant: Tenant, *, actor: str, address: str = "") -> bool:
    """Refuse the tenant's keys from now on; False if it was suspended already. For ``turns.suspend_tenant``."""
    with transaction.atomic(durable=True):
        changed = Tenant.objects.filter(pk=tenant.pk, suspended_at=None).update(suspended_at=Now())
        if changed:
            _record(audit.Action.TENANT_SUSPENDED, tenant, actor, address)
    tenant.refresh_from_db(fields=["suspended_at"])
    return bool(changed)


def resume(tenant: Tenant, *, actor: str, address: str = "") -> bool:
    """Accept the tenant's keys again; False if it was not suspended. InvalidInput if it is being deleted, or was."""
    with transaction.atomic():
        if TenantDeletion.objects.filter(tenant_id=tenant.pk).exists():
            raise InvalidInput([Fault((), f"the tenant {tenant.slug} is deleted; that cannot be taken back")])
        changed = Tenant.objects.filter(pk=tenant.pk).exclude(suspended_at=None).update(suspended_at=None)
        if changed:
            _record(audit.Action.TENANT_RESUMED, tenant, actor, address)
    tenant.refresh_from_db(fields=["suspended_at"])
    return bool(changed)


def _update(tenant: Tenant, values: Mapping[str, Any], changes: Callable[[Tenant], list[str]], actor: str, address: str) -> bool:
    """Store these columns if ``changes``, which describes the differences from the stored row, finds any."""
    with transaction.atomic():
        row = Tenant.objects.select_for_update().get(pk=tenant.pk)
        found = changes(row)
        if found:
            Tenant.objects.filter(pk=row.pk).update(**values)
            _record(audit.Action.TENANT_CHANGED, row, actor, address, "; ".join(found))
    tenant.refresh_from_db(fields=list(values))
    return bool(found)


def _record(action: audit.Action, tenant: Tenant, actor: str, address: str, detail: str = "") -> None:
    target = f"tenant {tenant.slug}"
    audit.record(actor=actor, address=address, action=action, target=target, tenant=tenant, detail=detail)


def _days(days: int | None) -> str:
    return "forever" if days is None else f"{days} days"


def _agents(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(names)
