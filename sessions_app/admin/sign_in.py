"""Sign-in to the admin: the django-axes handler, the form, and the page for clients that must wait."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from axes.handlers.base import AbstractAxesHandler, AxesBaseHandler
from django import forms
from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from sessions_app.admin.pages import address, own_page
from sessions_app.core.tenancy import sign_ins

_WAIT = "agenthost_sign_in_wait"


class Handler(AbstractAxesHandler, AxesBaseHandler):  # type: ignore[misc]  # axes has no types
    """Connects django-axes, which wraps every Django sign-in, to core.tenancy.sign_ins."""

    def is_allowed(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> bool:
        if credentials is None:
            # django-axes also calls this for a page that only shows the form.
            return True
        wait = sign_ins.begin(_attempt(request, credentials))
        setattr(request, _WAIT, wait)
        return wait is None

    def user_login_failed(
        self,
        sender: Any,  # noqa: ARG002
        credentials: dict[str, Any],
        request: HttpRequest | None = None,
        **_: Any,
    ) -> None:
        # The password of a refused attempt was not checked; recording each one would let anybody fill the audit.
        if request is not None and getattr(request, _WAIT, None) is None:
            _failed(request, _attempt(request, credentials))

    def user_logged_in(self, sender: Any, request: HttpRequest, user: AbstractBaseUser, **_: Any) -> None:  # noqa: ARG002
        sign_ins.succeed(sign_ins.Attempt(user.get_username(), address(request)))

    def user_logged_out(self, sender: Any, request: HttpRequest, user: AbstractBaseUser | None, **_: Any) -> None:
        pass

    def post_save_access_attempt(self, instance: Any, **_: Any) -> None:
        pass

    def post_delete_access_attempt(self, instance: Any, **_: Any) -> None:
        pass

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:  # noqa: ARG002
        # Only is_allowed checks limits.
        return 0

    def reset_attempts(self, *, ip_address: str | None = None, username: str | None = None, ip_or_username: bool = False) -> int:
        if ip_or_username:
            return sign_ins.unlock(address=ip_address) + sign_ins.unlock(account=username)
        return sign_ins.unlock(username, ip_address)


class SignInForm(AdminAuthenticationForm):
    def confirm_login_allowed(self, user: User) -> None:
        """A right password of an account that may not use the admin counts as a failure."""
        try:
            super().confirm_login_allowed(user)
        except forms.ValidationError:
            if self.request is not None:
                _failed(self.request, sign_ins.Attempt(user.get_username(), address(self.request)), "not a staff account")
            raise


admin.site.login_form = SignInForm


def refused(request: HttpRequest, *_: Any) -> HttpResponse:
    """The response to a sign-in that must wait."""
    wait: timedelta = getattr(request, _WAIT, None) or timedelta(seconds=1)
    minutes = math.ceil(wait.total_seconds() / 60)
    context = {
        **admin.site.each_context(request),
        "title": "Too many failed sign-ins",
        "minutes": minutes,
        "account": User.normalize_username(request.POST.get("username", ""))[:150],
    }
    response = own_page(request, "agenthost/sign_in_wait.html", context, status=429)
    response["Retry-After"] = str(math.ceil(wait.total_seconds()))
    return response


def _attempt(request: HttpRequest, credentials: dict[str, Any]) -> sign_ins.Attempt:
    return sign_ins.Attempt(str(credentials.get("username") or ""), address(request))


def _failed(request: HttpRequest, attempt: sign_ins.Attempt, reason: str = "") -> None:
    wait = sign_ins.fail(attempt, reason)
    if wait is not None:
        setattr(request, _WAIT, wait)
        # AxesMiddleware then calls ``refused`` instead of showing the form.
        request.axes_locked_out = True  # type: ignore[attr-defined]
