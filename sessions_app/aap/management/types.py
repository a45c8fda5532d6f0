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
    uri: Annotated[str, "Its address over AHP."]
    agent: str
    title: str | None
    createdAt: _TIME
    modifiedAt: _TIME
    use: Use


class FoundSession(TypedDict):
    sessionId: str
    agent: str
    title: str | None
    state: Annotated[str | None, "Of its newest turn: queued, running, waiting, done, error or cancelled; null: there is none."]
    createdAt: _TIME
    modifiedAt: _TIME


class FoundSessions(TypedDict):
    sessions: Annotated[list[FoundSession], "At most 50, the newest first."]
    next: NotRequired[Annotated[str, "For `before`: there are more."]]


# --- keys ---

_LIMIT = Annotated[int | None, "Null: only the tenant's limit applies."]
_KEY_SCOPES = Annotated[
    list[str],
    "Of meta:read, sessions:read, sessions:write, webhooks, keys, use, members, export, audit, *; only what the sender has.",
]


class Limits(TypedDict):
    """The limits of a key. In a change, what is left out stays as it is."""

    turnsAtOnce: NotRequired[_LIMIT]
    turnsPerMinute: NotRequired[_LIMIT]
    tokensPerDay: NotRequired[_LIMIT]
    sessions: NotRequired[_LIMIT]
    storedBytes: NotRequired[_LIMIT]
    requestBytes: NotRequired[_LIMIT]


class NewKey(TypedDict):
    """A request for a key."""

    name: Annotated[str, "Its purpose, shown in lists and in the audit."]
    scopes: _KEY_SCOPES
    agents: NotRequired[Annotated[list[str] | None, "The only agents that it may use; null or left out: all of the tenant."]]
    expiresAt: NotRequired[Annotated[str | None, "A time with its zone, such as 2027-01-31T00:00:00Z; null or left out: never."]]
    limits: NotRequired[Limits]


class KeyChange(TypedDict):
    limits: Limits


LONGEST_OVERLAP = 2_592_000
"""Seconds."""


class KeyRotation(TypedDict):
    overlapSeconds: NotRequired[
        Annotated[int, "How long the old key still works: a day if left out.", Rule(minimum=0, maximum=LONGEST_OVERLAP)]
    ]


class Key(TypedDict):
    """A key of the tenant, without the key itself."""

    id: str
    prefix: Annotated[str, "Its first characters."]
    name: str
    scopes: list[str]
    agents: list[str] | None
    state: Annotated[str, "active, expired or revoked."]
    limits: Limits
    createdAt: _TIME
    expiresAt: str | None
    lastUsedAt: Annotated[str | None, "Updated once a minute at most."]


class IssuedKey(Key):
    """A new key. ``key`` is returned only here."""

    key: str


class Keys(TypedDict):
    keys: Annotated[list[Key], "At most 50, the newest first."]
    next: NotRequired[Annotated[str, "For `before`: there are more."]]


NEW_KEY: Shape[NewKey] = Shape(NewKey)
KEY_CHANGE: Shape[KeyChange] = Shape(KeyChange)
KEY_ROTATION: Shape[KeyRotation] = Shape(KeyRotation)


# --- use of the tenant ---


class UseLine(Use):
    """A sum. The members by which it was asked for are there: day, key, agent, model."""

    day: NotRequired[str]
    key: NotRequired[str]
    agent: NotRequired[str]
    model: NotRequired[str]


class LimitOfTenant(TypedDict):
    name: str
    used: Annotated[int | None, "Null: not accumulated, such as a rate."]
    limit: Annotated[int | None, "Null: none."]


class TurnsOfDay(TypedDict):
    day: str
    ended: int
    errors: int


class UseOfTenant(TypedDict):
    first: Annotated[str, "The first day, in UTC."]
    last: str
    lines: Annotated[list[UseLine], "At most 10,000."]
    turns: Annotated[list[TurnsOfDay], "By day; days without any are left out. Kept for 180 days, counted once a minute."]
    limits: Annotated[list[LimitOfTenant], "Of the tenant, now."]


class Percentiles(TypedDict):
    """Of the turns of the range, in seconds; null: there was none."""

    median: float | None
    p95: float | None


class TurnsOfAgent(TypedDict):
    agent: str
    turns: int
    errors: int


class WaitingTurn(TypedDict):
    sessionId: str
    agent: str
    since: _TIME


class ExpiringKey(TypedDict):
    id: str
    prefix: str
    name: str
    expiresAt: _TIME


class OverviewOfTenant(TypedDict):
    """What happened lately, and what waits for somebody. Sums are counted once a minute."""

    range: Annotated[str, "The time that the sums are of: the last hour, day or week."]
    running: Annotated[int, "Turns, now; at most 10,000 are counted."]
    queued: int
    waiting: Annotated[int, "Turns that wait for their client: a permission, a tool's result or a form."]
    workersAlive: Annotated[bool, "False: turns are accepted and wait, until the operator starts a worker."]
    turns: Annotated[int, "That ended, however they did."]
    errors: int
    firstOutputSeconds: Annotated[Percentiles, "From a client's request to the first piece of the answer."]
    durationSeconds: Annotated[Percentiles, "Of turns that never waited for their client."]
    calls: Annotated[int, "Of models."]
    inputTokens: int
    outputTokens: int
    cacheReadTokens: int
    cost: Annotated[str, "A decimal number in the unit of the operator's price list, of what had a price."]
    agents: Annotated[list[TurnsOfAgent], "Those with the most turns, at most 50."]
    limits: Annotated[list[LimitOfTenant], "Of the tenant, now."]
    waitingLongest: NotRequired[Annotated[list[WaitingTurn], "At most 5; only for keys with the scope sessions:read."]]
    keysThatExpire: NotRequired[Annotated[list[ExpiringKey], "Within 14 days, at most 5; only for keys with the scope keys."]]


# --- members ---

_ROLE = Annotated[str, "owner, developer or reader."]


class Member(TypedDict):
    """An account that is a member of the tenant."""

    id: str
    name: Annotated[str, "With which the account signs in."]
    role: _ROLE
    createdAt: Annotated[str, "When it became a member.", Rule(format="date-time")]


class Members(TypedDict):
    members: Annotated[list[Member], "At most 50, the newest first."]
    next: NotRequired[Annotated[str, "For `before`: there are more."]]


class MemberChange(TypedDict):
    role: _ROLE


class NewInvitation(TypedDict):
    """A request for an invitation."""

    role: _ROLE
    email: NotRequired[Annotated[str, "Where the link is mailed, if the server can send mail."]]


class Invitation(TypedDict):
    """An open invitation, without its link."""

    id: str
    role: _ROLE
    email: str
    invitedBy: str
    createdAt: _TIME
    expiresAt: _TIME


class IssuedInvitation(Invitation):
    """A new invitation. ``link`` is returned only here."""

    link: Annotated[str, "For one person, once. Whoever opens it first becomes the member."]
    mailed: bool


class Invitations(TypedDict):
    invitations: list[Invitation]


MEMBER_CHANGE: Shape[MemberChange] = Shape(MemberChange)
NEW_INVITATION: Shape[NewInvitation] = Shape(NewInvitation)


# --- audit ---


class AuditRecord(TypedDict):
    """A record as in the operator's export, so that both can be compared."""

    link: Annotated[int, "For `after`."]
    chain: int
    number: Annotated[int, "Without gaps in a chain."]
    record: int
    at: _TIME
    tenant: str | None
    actor: str
    action: str
    target: str
    address: str
    detail: str
    hash: str


class AuditRecords(TypedDict):
    records: Annotated[list[AuditRecord], "At most 200, the oldest first."]
    next: NotRequired[Annotated[str, "For `after`: there may be more."]]


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
