"""The second factor: required for staff, where the setting demands it, before any page of the admin or console is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse

from sessions_app.accounts.people import account
from sessions_app.core.base import second_factor_secrets
from sessions_app.core.base.sealing import CannotUnseal
from sessions_app.core.tenancy import rights

_PAGES = ("/admin/", "/console/")
_FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


def is_required(user: Any) -> bool:
    return bool(settings.AGENTHOST_STAFF_SECOND_FACTOR) and rights.account_of(user).is_staff


def has_one(user: Any) -> bool:
    return bool(Authenticator.objects.filter(user_id=user.pk, type__in=_FACTORS).exists())


def may_remove(authenticator: Authenticator) -> bool:
    """Staff that need a second factor keep one."""
    if not is_required(authenticator.user) or authenticator.type not in _FACTORS:
        return True
    others = Authenticator.objects.filter(user_id=authenticator.user_id, type__in=_FACTORS).exclude(pk=authenticator.pk)
    return bool(others.exists())


_LAST = "last_counter"


def take_code(authenticator: Authenticator, code: str) -> bool:
    """Whether this valid code was not used before, on any web process; from now on it was, and so were all older ones.

    django-allauth remembers used codes in the memory of one process. Codes of other kinds are not changed.
    """
    if authenticator.type != Authenticator.Type.TOTP:
        return True
    secret = second_factor_secrets.unseal(authenticator.data["secret"])
    typed = normalize_user_code(code)
    fits = [each for each in yield_hotp_counters_from_time() if format_hotp_value(hotp_value(secret, each)) == typed]
    for _ in range(_TRIES):
        data = Authenticator.objects.filter(pk=authenticator.pk).values_list("data", flat=True).first()
        if data is None or not fits or max(fits) <= data.get(_LAST, 0):
            return False
        # Only if no other process has changed it meanwhile.
        if Authenticator.objects.filter(pk=authenticator.pk, data=data).update(data={**data, _LAST: max(fits)}):
            return True
    return False


_TRIES = 3


def sealed_counts() -> dict[str, int]:
    """How many accounts' secrets are sealed with each key, by the key's id; recovery codes and TOTP keys count separately."""
    found: dict[str, int] = {}
    for data in Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN).values_list("data", flat=True).iterator():
        for value in data.values():
            if isinstance(value, str) and (key := second_factor_secrets.key_id_of(value)) is not None:
                found[key] = found.get(key, 0) + 1
    return found


def reseal() -> Iterator[tuple[int, int]]:
    """As ``sealing.reseal``."""
    for row in Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN).order_by("pk").iterator():
        yield _reseal(row)


def _reseal(row: Authenticator) -> tuple[int, int]:
    data = dict(row.data)
    try:
        for name, value in row.data.items():
            if isinstance(value, str) and second_factor_secrets.is_outdated(value):
                data[name] = second_factor_secrets.seal(second_factor_secrets.unseal(value))
    except CannotUnseal:
        return 0, 1
    if data == row.data:
        return 0, 0
    # Only if it was not changed meanwhile.
    return Authenticator.objects.filter(pk=row.pk, data=row.data).update(data=data), 0


class RequireSecondFactor:
    """Middleware: sends staff without a second factor to the page that sets one up."""

    async_capable = sync_capable = True

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponseBase | None:
        """Runs in a thread, where the database may be used."""
        if not request.path_info.startswith(_PAGES) or not settings.AGENTHOST_STAFF_SECOND_FACTOR:
            return None
        if not account(request).is_staff or has_one(request.user):
            return None
        messages.warning(request, "This server requires a second factor of staff. Set one up to continue.")
        return HttpResponseRedirect(reverse("mfa_index"))
