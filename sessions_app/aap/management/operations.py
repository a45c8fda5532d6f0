"""What the management API's endpoints do, for its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessions_app.aap.management import types


@dataclass(frozen=True, slots=True)
class Operation:
    """``answers``: by status the meaning and the declared type of the body, None for none. ``refusals``: by status.

    ``queries``: what each means. ``file``: the media types of an answer that is a file to save.
    """

    name: str
    summary: str
    text: str
    answers: Mapping[int, tuple[str, Any]]
    refusals: Mapping[int, str]
    body: Any = None
    queries: Mapping[str, str] = field(default_factory=dict)
    file: tuple[str, ...] = ()


EVERY = {401: "There is no valid key.", 429: "A limit is reached.", 503: "The server cannot answer now."}
_WEBHOOK = {403: "The key lacks the scope webhooks.", 409: "The key is limited to agents, or is a token."}
_ONE = {**_WEBHOOK, 404: "The tenant has no such webhook or delivery."}

_KEYS = {
    403: "The key lacks the scope keys, or a scope of the key that is to be changed or made.",
    409: "The key has limits, or is limited to agents, or is a token.",
}
_MEMBERS = {
    403: "The key lacks the scope members, or a scope that stands for a right of the role.",
    409: "The key has limits, is limited to agents, expires, or is a token; or the tenant would have no owner.",
}
_BEFORE = {"before": "Continues a list at its `next`."}
_ONE_KEY = {**_KEYS, 404: "The tenant has no such key."}

_DAYS = {
    "since": "Only sessions created on this day (UTC) or later.",
    "until": "Only sessions created on this day (UTC) or before.",
}
_EXPORT = {
    403: "The key lacks the scope export, or does not see the workspace of the session.",
    409: "Too many exports are being downloaded, or the operator's rules restrict files and `files` is true.",
}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/api/sessions"): Operation(
        "findSessions",
        "Find sessions",
        "The newest first, all conditions together. Words are found in titles and in what users and models wrote, a minute after"
        " a turn's end at the latest, among the newest 500 matches of the tenant. Lists are recorded in the audit once an hour.",
        {200: ("The sessions.", types.FoundSessions)},
        {400: "The query is not valid.", 403: "The key lacks the scope sessions:read."},
        queries={
            "words": 'Words of titles and messages: `invoice 4711`, `"paid twice"`, `-draft`, `invo*`.',
            "id": "The start of a session's id.",
            "agent": "The name of an agent.",
            "key": "The first characters of the key that created the session.",
            "state": "Of the newest turn: queued, running, waiting, error; idle: no turn is live.",
            **_DAYS,
            **_BEFORE,
        },
    ),
    ("GET", "/api/sessions/{session}/export"): Operation(
        "exportSession",
        "Take a session away",
        "As JSON Lines with everything that is stored of it, or as one page to read. JSON Lines end with a record that has counts"
        " and a SHA-256: a file without it is incomplete. Secret options are masked. Recorded in the audit.",
        {200: ("The file.", None)},
        {**_EXPORT, 400: "The query is not valid.", 404: "There is no such session."},
        queries={
            "form": "jsonl (default) or html.",
            "files": "true: with the files of its workspace, which only JSON Lines can have.",
        },
        file=("application/jsonl", "application/octet-stream"),
    ),
    ("GET", "/api/export"): Operation(
        "exportTenant",
        "Take all data of the tenant away",
        "A zip archive with a JSON Lines file for each session and an index at its end. It is written while it is sent; an"
        " archive that was cut off cannot be opened. Recorded in the audit.",
        {200: ("The archive.", None)},
        {
            **_EXPORT,
            400: "The query is not valid.",
            409: f"The key is limited to agents. {_EXPORT[409]}",
        },
        queries={**_DAYS, "pages": "true: with a page to read for each session.", "files": "true: with the files of workspaces."},
        file=("application/zip",),
    ),
    ("GET", "/api/members"): Operation(
        "listMembers",
        "List the tenant's members",
        "The accounts that may use the console for this tenant.",
        {200: ("The members.", types.Members)},
        {**_MEMBERS, 400: "The query is not valid."},
        queries=_BEFORE,
    ),
    ("PATCH", "/api/members/{member}"): Operation(
        "changeMember",
        "Give a member another role",
        "The key needs the scopes that stand for both roles: a reader's are sessions:read and use; a developer's also meta:read,"
        " sessions:write, webhooks, keys and export; an owner's also members and audit. The last owner stays owner.",
        {200: ("The member.", types.Member)},
        {**_MEMBERS, 404: "The tenant has no such member.", 422: "The body is not valid."},
        types.MemberChange,
    ),
    ("DELETE", "/api/members/{member}"): Operation(
        "removeMember",
        "Remove a member",
        "The member's tokens end at once. The last owner stays.",
        {204: ("The member is removed.", None)},
        {**_MEMBERS, 404: "The tenant has no such member."},
    ),
    ("GET", "/api/invitations"): Operation(
        "listInvitations",
        "List the open invitations",
        "Without their links.",
        {200: ("The invitations.", types.Invitations)},
        _MEMBERS,
    ),
    ("POST", "/api/invitations"): Operation(
        "invite",
        "Invite somebody",
        "The link works once, for a week. The key needs the scopes that stand for the role, as in changeMember.",
        {201: ("The invitation with its link, which is returned only here.", types.IssuedInvitation)},
        {**_MEMBERS, 422: "The body is not valid."},
        types.NewInvitation,
    ),
    ("DELETE", "/api/invitations/{invitation}"): Operation(
        "withdrawInvitation",
        "Withdraw an invitation",
        "Its link works no more.",
        {204: ("It is withdrawn.", None)},
        {**_MEMBERS, 404: "The tenant has no such open invitation."},
    ),
    ("GET", "/api/audit"): Operation(
        "readAudit",
        "Read the tenant's audit",
        "In the order in which records were linked into the tenant's chain, within two minutes. Recorded once an hour.",
        {200: ("The records.", types.AuditRecords)},
        {
            400: "The query is not valid.",
            403: "The key lacks the scope audit.",
            409: "The key is limited to agents, or is a token.",
        },
        queries={"after": "Continues at the `next` of an earlier answer, or behind the `link` of a record."},
    ),
    ("GET", "/api/sessions/{session}"): Operation(
        "getSessionUse",
        "Show a session's address, dates and use",
        "Its tokens and what they cost, all turns together; the use of an answer is the difference of before and after. A call"
        " is counted when its answer is stored.",
        {200: ("The session.", types.SessionUse)},
        {403: "The key lacks the scope sessions:read.", 404: "There is no such session."},
    ),
    ("POST", "/api/tokens"): Operation(
        "mintToken",
        "Mint a token for one session",
        "For a browser, which so never has the key. The token has a part of the key's rights, sees its session and nothing else,"
        " and ends within a second with the key. Tokens cannot mint tokens.",
        {201: ("The token, which is returned only here.", types.MintedToken)},
        {
            403: "The key lacks one of the scopes, or a token was sent.",
            404: "There is no such session.",
            422: "The body is not valid.",
        },
        types.NewToken,
    ),
    ("GET", "/api/tokens"): Operation(
        "listTokens",
        "List the key's valid tokens",
        "Without the tokens themselves.",
        {200: ("The tokens.", types.Tokens)},
        {403: "A token was sent."},
    ),
    ("DELETE", "/api/tokens/{token}"): Operation(
        "revokeToken",
        "Revoke a token",
        "By the id from its minting. Its streams and connections end within a second; a turn that it has started continues."
        " A token may revoke itself.",
        {204: ("It is revoked.", None)},
        {404: "The key has made no such token, or it has ended."},
    ),
    ("GET", "/api/keys"): Operation(
        "listKeys",
        "List the tenant's keys",
        "Without those under which members act in the console.",
        {200: ("The keys.", types.Keys)},
        {**_KEYS, 400: "The query is not valid."},
        queries={"state": "active, expired or revoked.", **_BEFORE},
    ),
    ("POST", "/api/keys"): Operation(
        "issueKey",
        "Make a key",
        "It never has a scope that the sender has not.",
        {201: ("The key, which is returned only here.", types.IssuedKey)},
        {**_KEYS, 422: "The body is not valid."},
        types.NewKey,
    ),
    ("GET", "/api/keys/{key}"): Operation("getKey", "Show a key", "By its id.", {200: ("The key.", types.Key)}, _ONE_KEY),
    ("PATCH", "/api/keys/{key}"): Operation(
        "limitKey",
        "Change a key's limits",
        "They count from its next request on. Refused for a key with more scopes than the sender's.",
        {200: ("The key.", types.Key)},
        {**_ONE_KEY, 422: "The body is not valid."},
        types.KeyChange,
    ),
    ("POST", "/api/keys/{key}/rotate"): Operation(
        "rotateKey",
        "Replace a key",
        "The new one has the same rights, and the use of both is counted together. Refused for a key with more scopes than the"
        " sender's.",
        {200: ("The new key, which is returned only here.", types.IssuedKey)},
        {**_ONE_KEY, 422: "The body is not valid, or the key is revoked or has expired."},
        types.KeyRotation,
    ),
    ("DELETE", "/api/keys/{key}"): Operation(
        "revokeKey",
        "Revoke a key",
        "Permanently; its streams end and its runs are stopped. Refused for a key with more scopes than the sender's.",
        {204: ("It is revoked.", None)},
        _ONE_KEY,
    ),
    ("GET", "/api/overview"): Operation(
        "getOverview",
        "Show what happened lately, and what waits",
        "The figures of the console's first page: turns, errors, times, tokens and cost of the last hour, day or week, and what"
        " is running and waiting now.",
        {200: ("The figures.", types.OverviewOfTenant)},
        {
            400: "The query is not valid.",
            403: "The key lacks the scope use.",
            409: "The key is limited to agents, or is a token.",
        },
        queries={"range": "hour, day (default) or week."},
    ),
    ("GET", "/api/use"): Operation(
        "getUse",
        "Show the tenant's use and limits",
        "Sums of what models were asked for, the turns by day, and the limits with what is used of them.",
        {200: ("The sums and the limits.", types.UseOfTenant)},
        {
            400: "The query is not valid.",
            403: "The key lacks the scope use.",
            409: "The key is limited to agents, or is a token.",
            422: "The period or the groups are not valid.",
        },
        queries={
            "from": "The first day in UTC; by default the last 30 days.",
            "to": "The last day.",
            "by": "What to sum by, separated by commas: day, key, agent, model (default: day).",
        },
    ),
    ("GET", "/api/webhooks"): Operation(
        "listWebhooks", "List the tenant's webhooks", "Without their secrets.", {200: ("The webhooks.", types.Webhooks)}, _WEBHOOK
    ),
    ("POST", "/api/webhooks"): Operation(
        "createWebhook",
        "Make a webhook",
        "It gets what happens from now on.",
        {201: ("The webhook with its secret, which is returned only here.", types.WebhookWithSecret)},
        {**_WEBHOOK, 409: "The tenant has its limit of webhooks.", 422: "The body is not valid."},
        types.NewWebhook,
    ),
    ("GET", "/api/webhooks/{webhook}"): Operation(
        "getWebhook", "Show a webhook", "Without its secret.", {200: ("The webhook.", types.Webhook)}, _ONE
    ),
    ("PATCH", "/api/webhooks/{webhook}"): Operation(
        "changeWebhook",
        "Change, disable or enable a webhook",
        "Members that are left out stay as they are.",
        {200: ("The webhook.", types.Webhook)},
        {**_ONE, 422: "The body is not valid."},
        types.WebhookChange,
    ),
    ("DELETE", "/api/webhooks/{webhook}"): Operation(
        "deleteWebhook", "Delete a webhook", "Its deliveries are deleted with it.", {204: ("It is deleted.", None)}, _ONE
    ),
    ("POST", "/api/webhooks/{webhook}/rotate"): Operation(
        "rotateWebhookSecret",
        "Give a webhook a new secret",
        "For a day both secrets sign.",
        {200: ("The webhook with its new secret.", types.WebhookWithSecret)},
        _ONE,
    ),
    ("POST", "/api/webhooks/{webhook}/test"): Operation(
        "testWebhook",
        "Send a test",
        "An event of the type `test`.",
        {202: ("The delivery, which is sent soon.", types.Delivery)},
        {**_ONE, 409: "The webhook is disabled, or has too many undelivered tests."},
    ),
    ("GET", "/api/webhooks/{webhook}/deliveries"): Operation(
        "listDeliveries",
        "List what was sent",
        "With the last answer of each.",
        {200: ("The deliveries.", types.Deliveries)},
        _ONE,
        queries=_BEFORE,
    ),
    ("POST", "/api/webhooks/{webhook}/deliveries/{delivery}/repeat"): Operation(
        "repeatDelivery",
        "Send a delivery again",
        "Now, with the same id, and for another day if it fails.",
        {202: ("The delivery.", types.Delivery)},
        {**_ONE, 409: "The webhook is disabled."},
    ),
}
