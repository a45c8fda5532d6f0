"""The pages of accounts and of their roles as staff, for superusers only.

Django's groups and permissions count for nothing here, so their fields and pages are left out:
``core.tenancy.rights`` has the rights of each role.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.contrib.auth import admin as django_admin  # registers its pages, which ours replace
from django.contrib.auth.models import Group, User
from django.http import HttpRequest

from sessions_app.accounts.people import account
from sessions_app.models import Member, Staff

if TYPE_CHECKING:
    _UserAdmin = django_admin.UserAdmin[User]
    _StaffInline = admin.StackedInline[Staff, User]
    _MemberInline = admin.TabularInline[Member, User]
    _FactorInline = admin.TabularInline[Any, User]
else:
    # Django's classes are generic only for the type checker.
    _UserAdmin = django_admin.UserAdmin
    _StaffInline = admin.StackedInline
    _MemberInline = _FactorInline = admin.TabularInline


def _is_superuser(request: HttpRequest) -> bool:
    return account(request).is_superuser


class SuperusersOnly:
    def has_module_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return _is_superuser(request)


class StaffInline(SuperusersOnly, _StaffInline):
    model = Staff
    filter_horizontal = ("tenants",)
    verbose_name = "Role in the admin"
    verbose_name_plural = "Role in the admin (superusers need none)"


class MembershipInline(SuperusersOnly, _MemberInline):
    """Read-only: owners and operators change members on the tenant's pages."""

    model = Member
    verbose_name_plural = "Member of"
    fields = readonly_fields = ("tenant", "role", "created_at")
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


class SecondFactorInline(SuperusersOnly, _FactorInline):
    """Shown, and removed if they were lost. Their secrets are sealed and not shown."""

    model = Authenticator
    verbose_name_plural = "Second factors"
    fields = readonly_fields = ("type", "created_at", "last_used_at")
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False


admin.site.unregister([User, Group])
# django-allauth registers pages that ask Django's permissions and show what they like. Registered first, so that they cannot
# be registered again later.
_FOREIGN = ("account", "mfa", "socialaccount", "usersessions")
for _app in _FOREIGN:
    importlib.import_module(f"allauth.{_app}.admin")
admin.site.unregister([model for model in list(admin.site._registry) if model._meta.app_label in _FOREIGN])


@admin.register(User)
class AccountAdmin(SuperusersOnly, _UserAdmin):
    fieldsets = (
        (None, {"fields": ("username", "password", "email")}),
        ("Rights", {"fields": ("is_active", "is_superuser")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")
    list_display = ("username", "email", "role", "is_active", "last_login")
    list_filter = ()
    list_select_related = ("staff",)
    search_fields = ("username", "email")
    filter_horizontal = ()
    inlines = (StaffInline, MembershipInline, SecondFactorInline)

    def get_inlines(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ARG002
        # A new account is saved with its password first.
        return () if obj is None else self.inlines

    @admin.display(description="role in the admin")
    def role(self, row: User) -> str:
        if row.is_superuser:
            return "superuser"
        staff: Staff | None = getattr(row, "staff", None)
        if staff is None:
            return "none"
        return f"{staff.role}, some tenants" if staff.limited else staff.role
