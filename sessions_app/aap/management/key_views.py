"""The endpoints of keys. They need the scope ``keys``, and a key without limits of its own that sees its whole tenant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from sessions_app.aap.dialect import Document
from sessions_app.aap.management import types
from sessions_app.aap.management.webhook_views import read, time_text
from sessions_app.aap.views import Endpoint, caller_of, json_answer, no_content
from sessions_app.core import turns
from sessions_app.core.base.caller import KEYS, Limits
from sessions_app.core.base.errors import Fault, InvalidInput, KeyNotFound
from sessions_app.core.tenancy import api_audit, key_management, keys, quotas
from sessions_app.models import ApiKey, Tenant

_A_PAGE = 50
_OVERLAP = 86_400
_NAMES = {name: name.split("_")[0] + "".join(part.capitalize() for part in name.split("_")[1:]) for name in quotas.NAMES}
"""The members of limits, by the names of the core."""


class _Endpoint(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD", "POST", "PATCH", "DELETE"), KEYS)
    http_method_names = ["get", "head", "post", "patch", "delete"]

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        key_management.require(caller_of(request))

    def found(self, request: Request, key: str) -> ApiKey:
        if not (key.isascii() and key.isdigit() and len(key) < 19):
            raise KeyNotFound
        return keys.find(caller_of(request).tenant, int(key))

    def by(self, request: Request) -> dict[str, str]:
        """The actor and address of audit records."""
        return api_audit.by(caller_of(request))


class Keys(_Endpoint):
    def get(self, request: Request) -> HttpResponse:
        before, state = request.GET.get("before"), request.GET.get("state", "")
        if before is not None and not (before.isascii() and before.isdigit() and len(before) < 19):
            raise ParseError("The query `before` must be the value of `next` in an earlier answer.")
        if state and state not in keys.STATES:
            raise ParseError(f"The query `state` must be one of {', '.join(keys.STATES)}.")
        number = None if before is None else int(before)
        found = keys.of_tenant(caller_of(request).tenant, state=state, before=number, most=_A_PAGE + 1)
        shown: dict[str, Any] = {"keys": [_shown(row) for row in found[:_A_PAGE]]}
        if len(found) > _A_PAGE:
            shown["next"] = str(found[_A_PAGE - 1].pk)
        return json_answer(shown)

    def post(self, request: Request) -> HttpResponse:
        caller = caller_of(request)
        wanted: types.NewKey = read(request, types.NEW_KEY, types.NewKey)
        key_management.require_scopes(caller, wanted["scopes"])
        expires_at = _time(wanted.get("expiresAt"))
        key_management.require_end(caller, expires_at)
        try:
            issued = keys.issue(
                Tenant.objects.get(pk=caller.tenant),
                name=wanted["name"],
                scopes=wanted["scopes"],
                expires_at=expires_at,
                allowed_agents=wanted.get("agents"),
                limits=_limits(Limits(), wanted.get("limits", {})),
                **self.by(request),
            )
        except InvalidInput as error:
            raise _in_members(error) from None
        answer = _with_key(issued, 201)
        answer["Location"] = f"{request.path}/{issued.key.pk}"
        return answer


class OneKey(_Endpoint):
    def get(self, request: Request, key: str) -> HttpResponse:
        return json_answer(_shown(self.found(request, key)))

    def patch(self, request: Request, key: str) -> HttpResponse:
        row = self.found(request, key)
        wanted: types.KeyChange = read(request, types.KEY_CHANGE, types.KeyChange)
        try:
            keys.set_limits(row, _limits(quotas.own_limits(row), wanted["limits"]), **self.by(request))
        except InvalidInput as error:
            raise _in_members(error) from None
        return json_answer(_shown(row))

    def delete(self, request: Request, key: str) -> HttpResponse:
        by = self.by(request)
        turns.revoke_key(self.found(request, key), actor=by["actor"], address=by["address"])
        return no_content()


class Rotation(_Endpoint):
    def post(self, request: Request, key: str) -> HttpResponse:
        row = self.found(request, key)
        wanted: types.KeyRotation = read(request, types.KEY_ROTATION, types.KeyRotation, required=False)
        key_management.require_scopes(caller_of(request), keys.shown_scopes(row))
        key_management.require_end(caller_of(request), keys.end_after_rotation(row, datetime.now(UTC)))
        seconds = wanted.get("overlapSeconds", _OVERLAP)
        if not 0 <= seconds <= types.LONGEST_OVERLAP:
            raise InvalidInput([Fault(("overlapSeconds",), f"must be from 0 to {types.LONGEST_OVERLAP:,}")])
        return _with_key(keys.rotate(row, timedelta(seconds=seconds), **self.by(request)), 200)


def _limits(before: Limits, wanted: types.Limits) -> Limits:
    given: dict[str, Any] = dict(wanted)
    return Limits(**{name: given.get(member, getattr(before, name)) for name, member in _NAMES.items()})


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput([Fault(("expiresAt",), "must be a time with its zone, such as 2027-01-31T00:00:00Z")])
    return found


_MEMBERS = {"expires_at": ("expiresAt",), "allowed_agents": ("agents",)} | {
    quotas.column(name): ("limits", member) for name, member in _NAMES.items()
}


def _in_members(error: InvalidInput) -> InvalidInput:
    """The same faults, with the members of the body as their places."""
    return InvalidInput([Fault(_MEMBERS.get(str(fault.path[0]), fault.path), fault.detail) for fault in error.faults])


def _with_key(issued: keys.Issued, status: int) -> HttpResponse:
    answer = json_answer({**_shown(issued.key), "key": issued.raw}, status)
    answer["Cache-Control"] = "no-store"
    return answer


def _shown(row: ApiKey) -> Document:
    limits = quotas.own_limits(row)
    shown: types.Key = {
        "id": str(row.pk),
        "prefix": row.prefix,
        "name": row.name,
        "scopes": keys.shown_scopes(row),
        "agents": row.allowed_agents,
        "state": keys.state_of(row),
        "limits": {member: getattr(limits, name) for name, member in _NAMES.items()},  # type: ignore[typeddict-item]
        "createdAt": time_text(row.created_at) or "",
        "expiresAt": time_text(row.expires_at),
        "lastUsedAt": time_text(row.last_used_at),
    }
    return dict(shown)
