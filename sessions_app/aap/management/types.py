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


# --- sessions ---


class Use(TypedDict):
    """What the model calls of a session have used, all keys and models together."""

    calls: int
    inputTokens: Annotated[int, "All of them, those read from a cache included."]
    outputTokens: int
    cacheReadTokens: int
    cost: Annotated[str | None, "A decimal number in the unit of the operator's price list; null: no price was known."]
    unpricedTokens: Annotated[int, "Used while their model had no price; not in the cost."]


class SessionUse(TypedDict):
    """A session's dates and use."""

    sessionId: str
    agent: str
    title: str | None
    createdAt: _TIME
    modifiedAt: _TIME
    use: Use


# --- webhooks ---

_URL = Annotated[str, "The address, https; a host of the server's own network only if its operator allows it."]
_TYPES = Annotated[list[str], "Of turn.ended, turn.waiting, quota.reached, key.expiring."]


class NewWebhook(TypedDict):
    """A request for a webhook."""

    url: _URL
    types: _TYPES
    description: NotRequired[str]


class WebhookChange(TypedDict):
    """What is left out stays as it is."""

    url: NotRequired[_URL]
    types: NotRequired[_TYPES]
    description: NotRequired[str]
    enabled: NotRequired[Annotated[bool, "True enables a disabled one again; it then gets what happens from now on."]]


class Webhook(TypedDict):
    id: str
    url: str
    types: list[str]
    description: str
    enabled: bool
    disabledReason: str
    failingSince: Annotated[str | None, "Of the first failed attempt after the last one that succeeded."]
    createdAt: _TIME


class WebhookWithSecret(Webhook):
    """``secret`` is returned only here."""

    secret: Annotated[str, "Signs what is sent. After a rotation the one before signs as well, for a day."]


class Webhooks(TypedDict):
    webhooks: list[Webhook]


class Delivery(TypedDict):
    """One event for one webhook, with its last attempt."""

    id: str
    event: Annotated[str, "The header webhook-id."]
    type: str
    state: Annotated[str, "pending, delivered or failed."]
    attempts: int
    createdAt: _TIME
    nextAt: Annotated[str | None, "Of the next attempt; null: there is none."]
    lastAt: str | None
    status: Annotated[int | None, "Of the last answer; null: there was none."]
    answer: Annotated[str, "The start of the last answer's body, or why there was none."]
    body: Annotated[str, "What is sent."]


class Deliveries(TypedDict):
    deliveries: Annotated[list[Delivery], "At most 50, the newest first."]
    next: NotRequired[Annotated[str, "For `before`: there are more."]]


NEW_WEBHOOK: Shape[NewWebhook] = Shape(NewWebhook)
WEBHOOK_CHANGE: Shape[WebhookChange] = Shape(WebhookChange)
