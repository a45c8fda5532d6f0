"""The pages of operators' accounts and groups, for superusers only.

On Django's own pages, an account with the permission to change users can make itself a superuser or set a superuser's
password. So these pages ignore the permissions of both models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth import admin as django_admin  # registers its pages, which ours replace
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

if TYPE_CHECKING:
    _UserAdmin = django_admin.UserAdmin[User]
else:
    # Django's class is generic only for the type checker.
    _UserAdmin = django_admin.UserAdmin


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_superuser)


class SuperusersOnly:
    def has_module_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)


admin.site.unregister([User, Group])


@admin.register(User)
class AccountAdmin(SuperusersOnly, _UserAdmin):
    pass


@admin.register(Group)
class GroupAdmin(SuperusersOnly, django_admin.GroupAdmin):
    pass
