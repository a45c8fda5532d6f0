"""Audit records of changes to accounts, groups and rights.

Django's model signals write them in the transaction of the change, so changes through the admin, shell commands and the
models are all covered. Passwords are never recorded, only that one was changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from sessions_app.core.tenancy import audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import Staff

_RIGHTS = ("username", "is_active", "is_staff", "is_superuser")
_MOST_DETAIL = 8000
_BEFORE = "_agenthost_before"
_STAFF_RIGHTS = ("role", "reads_transcripts", "limited")
_MADE = {User: Action.ACCOUNT_CREATED, Group: Action.GROUP_CREATED, Staff: Action.STAFF_ADDED}
_CHANGED = {User: Action.ACCOUNT_CHANGED, Group: Action.GROUP_CHANGED, Staff: Action.STAFF_CHANGED}
_DELETED = {User: Action.ACCOUNT_DELETED, Group: Action.GROUP_DELETED, Staff: Action.STAFF_REMOVED}


def connect_signals() -> None:
    """Connect the signals; called once when the application is ready."""
    for model in (User, Group, Staff):
        pre_save.connect(_remember, sender=model, dispatch_uid="agenthost.accounts")
        post_save.connect(_saved, sender=model, dispatch_uid="agenthost.accounts")
        post_delete.connect(_deleted, sender=model, dispatch_uid="agenthost.accounts")
    for relation in (User.groups.through, User.user_permissions.through, Group.permissions.through, Staff.tenants.through):
        m2m_changed.connect(_related, sender=relation, dispatch_uid="agenthost.accounts")


def _record(action: Action, owner: Any, detail: str = "") -> None:
    actor, address = audit.acting_now()
    audit.record(actor=actor, action=action, target=_target(owner), address=address, detail=detail[:_MOST_DETAIL])


def _target(owner: Any) -> str:
    if isinstance(owner, Staff):
        owner = owner.user
    return f"account {owner.get_username()}" if isinstance(owner, User) else f"group {owner}"


def _facts(owner: Any) -> dict[str, str]:
    names = _RIGHTS if isinstance(owner, User) else _STAFF_RIGHTS if isinstance(owner, Staff) else ("name",)
    return {name: _text(getattr(owner, name)) for name in names}


def _text(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _remember(sender: type[Model], instance: Any, **_: Any) -> None:
    stored = None if instance.pk is None else sender._default_manager.filter(pk=instance.pk).first()
    setattr(instance, _BEFORE, stored)


def _saved(sender: type[Model], instance: Any, created: bool, update_fields: Iterable[str] | None = None, **_: Any) -> None:
    before = instance.__dict__.pop(_BEFORE, None)
    if created or before is None:
        _record(_MADE[sender], instance, "; ".join(f"{name}: {value}" for name, value in _facts(instance).items()))
        return
    written = None if update_fields is None else frozenset(update_fields)
    old, new = _facts(before), _facts(instance)
    changes = [
        f"{name}: {old[name]} → {new[name]}" for name in old if old[name] != new[name] and (written is None or name in written)
    ]
    if changes:
        _record(_CHANGED[sender], instance, "; ".join(changes))
    if isinstance(instance, User) and _password_changed(before, instance, written):
        _record(Action.PASSWORD_CHANGED, instance)


def _password_changed(before: User, after: User, written: frozenset[str] | None) -> bool:
    if before.password == after.password or (written is not None and "password" not in written):
        return False
    # At a sign-in Django may store a stronger hash of the same password. Only then it writes this column alone and has
    # no plain password in memory.
    return not (written == frozenset({"password"}) and getattr(after, "_password", None) is None)


def _deleted(sender: type[Model], instance: Any, **_: Any) -> None:
    _record(_DELETED[sender], instance)


def _related(sender: type[Model], instance: Any, action: str, reverse: bool, model: type[Model], pk_set: Any, **_: Any) -> None:
    """Groups or permissions were added or removed. ``reverse``: the change was made on the group or permission, for several
    owners."""
    when, change = action.split("_")
    if change == "clear":
        _cleared(sender, instance, when, reverse)
    elif when == "post" and pk_set:
        owners = model._default_manager.filter(pk__in=pk_set) if reverse else [instance]
        changed = {_name(instance)} if reverse else {_name(row) for row in model._default_manager.filter(pk__in=pk_set)}
        for owner in owners:
            now = _names(sender, owner)
            before = now - changed if change == "add" else now | changed
            _record_change(sender, owner, before, now)


def _cleared(relation: type[Model], instance: Any, when: str, reverse: bool) -> None:
    """``clear`` does not report the removed rows, so they are read before it."""
    if when == "pre":
        setattr(instance, _BEFORE, [(owner, _names(relation, owner)) for owner in _owners(relation, instance, reverse)])
        return
    for owner, before in instance.__dict__.pop(_BEFORE, ()):
        _record_change(relation, owner, before, _names(relation, owner))


def _owners(relation: type[Model], instance: Any, reverse: bool) -> list[Any]:
    if not reverse:
        return [instance]
    if relation is Staff.tenants.through:
        return list(Staff.objects.filter(tenants=instance))
    return list(instance.group_set.all() if relation is Group.permissions.through else instance.user_set.all())


def _record_change(relation: type[Model], owner: Any, before: set[str], now: set[str]) -> None:
    if before != now:
        kind = {User.groups.through: "groups", Staff.tenants.through: "tenants"}.get(relation, "permissions")
        _record(_CHANGED[type(owner)], owner, f"{kind}: {_listed(before)} → {_listed(now)}")


def _names(relation: type[Model], owner: Any) -> set[str]:
    if relation is User.groups.through:
        held: Iterable[Any] = owner.groups.all()
    elif relation is Staff.tenants.through:
        held = owner.tenants.all()
    else:
        permissions = owner.user_permissions if relation is User.user_permissions.through else owner.permissions
        held = permissions.select_related("content_type")
    return {_name(row) for row in held}


def _name(row: Any) -> str:
    return f"{row.content_type.app_label}.{row.codename}" if isinstance(row, Permission) else str(row)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
