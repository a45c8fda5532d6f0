"""Audit records of second factors and of connections with the company's provider, from django-allauth's signals.

A new second factor also signs the account out everywhere else: other browsers were signed in without it.
"""

from __future__ import annotations

from typing import Any

from allauth.mfa import signals as mfa_signals
from allauth.mfa.models import Authenticator
from allauth.socialaccount import signals as company_signals
from allauth.usersessions.internal.flows.sessions import end_other_sessions
from django.db.models.signals import post_delete
from django.http import HttpRequest

from sessions_app.accounts.people import actor, address
from sessions_app.core.tenancy import audit
from sessions_app.core.tenancy.audit import Action

_UID = "agenthost.accounts"


def connect() -> None:
    """Connect the signals; called once when the application is ready."""
    mfa_signals.authenticator_added.connect(_factor_added, dispatch_uid=_UID)
    post_delete.connect(_factor_removed, sender=Authenticator, dispatch_uid=_UID)
    mfa_signals.authenticator_reset.connect(_codes_made, dispatch_uid=_UID)
    company_signals.social_account_added.connect(_company_added, dispatch_uid=_UID)
    company_signals.social_account_removed.connect(_company_removed, dispatch_uid=_UID)


def _record(request: HttpRequest, action: Action, user: Any, detail: str) -> None:
    target = f"account {user.get_username()}"
    audit.record(actor=actor(request), action=action, target=target, address=address(request), detail=detail)


def _factor_added(request: HttpRequest, user: Any, authenticator: Any, **_: Any) -> None:
    _record(request, Action.SECOND_FACTOR_ADDED, user, str(authenticator.type))
    if request.user.is_authenticated:
        end_other_sessions(request, user)


def _factor_removed(instance: Any, **_: Any) -> None:
    """By its owner, by a superuser in the admin, or in a shell."""
    who, where = audit.acting_now()
    target = f"account {instance.user.get_username()}"
    audit.record(actor=who, action=Action.SECOND_FACTOR_REMOVED, target=target, address=where, detail=str(instance.type))


def _codes_made(request: HttpRequest, user: Any, authenticator: Any, **_: Any) -> None:
    _record(request, Action.RECOVERY_CODES_MADE, user, str(authenticator.type))


def _company_added(request: HttpRequest, sociallogin: Any, **_: Any) -> None:
    _record(request, Action.COMPANY_SIGN_IN_ADDED, sociallogin.user, sociallogin.account.uid)


def _company_removed(request: HttpRequest, socialaccount: Any, **_: Any) -> None:
    _record(request, Action.COMPANY_SIGN_IN_REMOVED, socialaccount.user, socialaccount.uid)
