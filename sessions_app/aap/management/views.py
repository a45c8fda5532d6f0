"""The endpoints of the management API: authenticate, parse, call the core, encode."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.http import HttpResponse
from rest_framework.request import Request

from sessions_app.aap.management import parameters, types
from sessions_app.aap.views import Endpoint, caller_of, json_answer, no_content, session_of
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.tenancy import origins, tokens
from sessions_app.core.tenancy.tokens import Minted

_SHOWN_TOKENS = 100


class Tokens(Endpoint):
    """No scope of its own: a token never has more rights than the key that mints it."""

    scopes = {}

    def get(self, request: Request) -> HttpResponse:
        answer = json_answer({"tokens": [_token(each) for each in tokens.live(caller_of(request), _SHOWN_TOKENS)]})
        answer["Cache-Control"] = "no-store"
        return answer

    def post(self, request: Request) -> HttpResponse:
        caller = caller_of(request)
        wanted: types.NewToken = parameters.body(request, types.NEW_TOKEN, types.NewToken)
        origin = wanted.get("origin", "")
        if origin:
            _require_readable(origin, request.headers.get("Host", ""))
        minted = tokens.mint(
            caller,
            session_of(caller, wanted["session"]),
            scopes=wanted.get("scopes"),
            seconds=wanted.get("seconds", tokens.USUAL),
            origin=origin,
        )
        answer = json_answer({**_token(minted), "token": minted.raw}, status=201)
        answer["Location"] = f"{request.path}/{minted.public_id}"
        answer["Cache-Control"] = "no-store"
        return answer


class OneToken(Endpoint):
    scopes = {}

    def delete(self, request: Request, token: str) -> HttpResponse:
        tokens.revoke(caller_of(request), token)
        return no_content()


def _require_readable(origin: str, host: str) -> None:
    """Refuse an origin whose pages could not read this server's answers anyway, instead of failing in the browser."""
    allowed = settings.AGENTHOST_CORS_ORIGINS
    if origins.fault(origin) is None and not ("*" in allowed or origin in allowed or origins.is_host(origin, host)):
        detail = (
            "pages of this origin cannot read this server's answers: its operator has not listed it in AGENTHOST_CORS_ORIGINS"
        )
        raise InvalidInput([Fault(("origin",), detail)])


def _token(minted: Minted) -> types.Token:
    return {
        "id": minted.public_id,
        "session": minted.session,
        "scopes": minted.scopes,
        "origin": minted.origin,
        "expiresAt": _time(minted.expires_at),
    }


def _time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
