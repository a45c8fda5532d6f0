"""The endpoints of keys. They need the scope ``keys``, and a key without limits of its own that sees its whole tenant."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from sessions_app.aap.dialect import Document
from sessions_app.aap.management import parameters, types
from sessions_app.aap.management.webhook_views import time_text
from sessions_app.aap.views import Endpoint, caller_of, json_answer, no_content
from sessions_app.core import turns
from sessions_app.core.base.caller import KEYS
from sessions_app.core.base.errors import Fault, InvalidInput, KeyNotFound
from sessions_app.core.tenancy import key_management, keys, quotas
from sessions_app.models import ApiKey

_OVERLAP = 86_400
_NAMES = {name: name.split("_")[0] + "".join(part.capitalize() for part in name.split("_")[1:]) for name in quotas.NAMES}
"""The members of limits, by the names of the core."""


class _Endpoint(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD", "POST", "PATCH", "DELETE"), KEYS)
    http_method_names = ["get", "head", "post", "patch", "delete"]

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        key_management.require(caller_of(request))


class Keys(_Endpoint):
    def get(self, request: Request) -> HttpResponse:
        before, state = parameters.before(request.GET), parameters.choice(request.GET, "state", keys.STATES)
        found = keys.of_tenant(caller_of(request).tenant, state=state, before=before, most=parameters.PAGE + 1)
        return json_answer(parameters.paged("keys", found, _shown, lambda row: row.pk))

    def post(self, request: Request) -> HttpResponse:
        wanted: types.NewKey = parameters.body(request, types.NEW_KEY, types.NewKey)
        try:
            issued = key_management.issue(
                caller_of(request),
                name=wanted["name"],
                scopes=wanted["scopes"],
                expires_at=_time(wanted.get("expiresAt")),
                allowed_agents=wanted.get("agents"),
                limits=_limits(wanted.get("limits", {})),
            )
        except InvalidInput as error:
            raise _in_members(error) from None
        answer = _with_key(issued, 201)
        answer["Location"] = f"{request.path}/{issued.key.pk}"
        return answer


class OneKey(_Endpoint):
    def get(self, request: Request, key: str) -> HttpResponse:
        return json_answer(_shown(keys.find(caller_of(request).tenant, _number(key))))

    def patch(self, request: Request, key: str) -> HttpResponse:
        number = _number(key)
        wanted: types.KeyChange = parameters.body(request, types.KEY_CHANGE, types.KeyChange)
        try:
            row = key_management.set_limits(caller_of(request), number, _limits(wanted["limits"]))
        except InvalidInput as error:
            raise _in_members(error) from None
        return json_answer(_shown(row))

    def delete(self, request: Request, key: str) -> HttpResponse:
        turns.revoke_key_for(caller_of(request), _number(key))
        return no_content()


class Rotation(_Endpoint):
    def post(self, request: Request, key: str) -> HttpResponse:
        number = _number(key)
        wanted: types.KeyRotation = parameters.body(request, types.KEY_ROTATION, types.KeyRotation, required=False)
        seconds = wanted.get("overlapSeconds", _OVERLAP)
        if not 0 <= seconds <= types.LONGEST_OVERLAP:
            raise InvalidInput([Fault(("overlapSeconds",), f"must be from 0 to {types.LONGEST_OVERLAP:,}")])
        return _with_key(key_management.rotate(caller_of(request), number, timedelta(seconds=seconds)), 200)


def _number(key: str) -> int:
    found = parameters.number(key)
    if found is None:
        raise KeyNotFound
    return found


def _limits(wanted: types.Limits) -> dict[str, int | None]:
    """Those that are given, by the names of the core."""
    given: dict[str, Any] = dict(wanted)
    return {name: given[member] for name, member in _NAMES.items() if member in given}


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
