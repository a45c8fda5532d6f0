"""The JSON of the management API, declared once for validation and for its OpenAPI document."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from sessions_app.core.base.shapes import Rule, Shape

_SCOPES = Annotated[list[str], "Never more than the key has. Of meta:read, sessions:read, sessions:write."]
_TIME = Annotated[str, Rule(format="date-time")]


class NewToken(TypedDict):
    """A request for a short-lived token."""

    session: Annotated[str, "The id of the only session that the token is for."]
    scopes: NotRequired[_SCOPES]
    seconds: NotRequired[
        Annotated[int, "How long it is valid: from 10 to 3,600; 600 if not given.", Rule(minimum=10, maximum=3600)]
    ]
    origin: NotRequired[
        Annotated[str, "The web origin whose pages may send it, such as https://app.example.com; without one, any client may."]
    ]


class Token(TypedDict):
    """A short-lived token, without the token itself."""

    id: str
    session: str
    scopes: list[str]
    origin: Annotated[str, "Empty: any client may send it."]
    expiresAt: _TIME


class MintedToken(Token):
    """A new token. ``token`` is returned only here."""

    token: Annotated[str, "Used as a key: in the header `Authorization: Bearer …`, or as AHP's subprotocol `bearer.…`."]


class Tokens(TypedDict):
    tokens: Annotated[list[Token], "At most 100, those that end last first."]


NEW_TOKEN: Shape[NewToken] = Shape(NewToken)
