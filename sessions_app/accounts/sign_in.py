"""Connects sign-ins to core.tenancy.sign_ins: the django-axes handler, and the page for clients that must wait.

Passwords are checked by Django's ``authenticate``, which django-axes wraps. Codes of a second factor and passwords that a
signed-in account repeats are checked by forms of django-allauth; ``guarded`` applies the same limits to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from axes.handlers.base import AbstractAxesHandler, AxesBaseHandler
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from sessions_app.accounts.people import address, own_page
from sessions_app.core.tenancy import rights, sign_ins
from sessions_app.core.tenancy.sign_ins import Attempt

_WAIT = "agenthost_sign_in_wait"


class Handler(AbstractAxesHandler, AxesBaseHandler):  # type: ignore[misc]  # axes has no types
    """Connects django-axes, which wraps every check of a name and password, to core.tenancy.sign_ins."""

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
            failed(request, _attempt(request, credentials))

    def user_logged_in(self, sender: Any, request: HttpRequest, user: AbstractBaseUser, **_: Any) -> None:  # noqa: ARG002
        attempt = Attempt(user.get_username(), address(request))
        sign_ins.succeed(attempt, is_staff=rights.account_of(user).is_staff, detail=_methods(request, user))

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


@contextmanager
def guarded(request: HttpRequest, user: User, what: str) -> Iterator[None]:
    """Count a check of a code or password, and record its failure, which is a ``ValidationError`` of the block.

    An account that is signed in already gets its count back when the check succeeds; at a sign-in ``user_logged_in`` does that.
    """
    attempt = Attempt(user.get_username(), address(request))
    wait = sign_ins.begin(attempt)
    if wait is not None:
        setattr(request, _WAIT, wait)
        # AxesMiddleware then calls ``refused`` instead of showing the form.
        request.axes_locked_out = True  # type: ignore[attr-defined]
        raise ValidationError("Too many failed attempts.")
    try:
        yield
    except ValidationError:
        failed(request, attempt, what)
        raise
    if request.user.is_authenticated:
        sign_ins.confirmed(attempt)


def failed(request: HttpRequest, attempt: Attempt, reason: str = "") -> None:
    """Record a failure. If it was the last one allowed, the response is the page that says how long to wait."""
    wait = sign_ins.fail(attempt, reason)
    if wait is not None:
        setattr(request, _WAIT, wait)
        request.axes_locked_out = True  # type: ignore[attr-defined]


def refused(request: HttpRequest, *_: Any) -> HttpResponse:
    """The response to a sign-in that must wait."""
    wait: timedelta = getattr(request, _WAIT, None) or timedelta(seconds=1)
    minutes = math.ceil(wait.total_seconds() / 60)
    context = {"minutes": minutes, "account": User.normalize_username(request.POST.get("login", ""))[:150]}
    response = own_page(request, "agenthost/people/wait.html", context, status=429)
    response["Retry-After"] = str(math.ceil(wait.total_seconds()))
    return response


def _attempt(request: HttpRequest, credentials: dict[str, Any]) -> Attempt:
    return Attempt(str(credentials.get("username") or ""), address(request))


def _methods(request: HttpRequest, user: AbstractBaseUser) -> str:
    """How the account proved itself: password, totp, recovery_codes, webauthn, or the company's provider."""
    if not hasattr(request, "session"):
        return ""
    records = get_authentication_records(request, user)
    return ", ".join(dict.fromkeys(str(one.get("type") or one.get("provider") or one["method"]) for one in records))
