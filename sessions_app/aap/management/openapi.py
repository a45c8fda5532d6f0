"""The OpenAPI document of the management API. A test compares its addresses and methods with the routes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.aap import problems
from sessions_app.aap.management import types
from sessions_app.core.base.json_schema import Components, Schema

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """``answers``: by status the meaning and the declared type of the body, None for none. ``refusals``: by status."""

    name: str
    summary: str
    text: str
    answers: Mapping[int, tuple[str, Any]]
    refusals: Mapping[int, str]
    body: Any = None


_EVERY = {401: "There is no valid key.", 429: "A limit is reached.", 503: "The server cannot answer now."}
_WEBHOOK = {403: "The key lacks the scope webhooks.", 409: "The key is limited to agents, or is a token."}
_ONE = {**_WEBHOOK, 404: "The tenant has no such webhook or delivery."}

_KEYS = {403: "The key lacks the scope keys.", 409: "The key has limits, or is limited to agents, or is a token."}
_ONE_KEY = {**_KEYS, 404: "The tenant has no such key."}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/api/sessions/{session}"): Operation(
        "getSessionUse",
        "Show a session's dates and use",
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
        "The query `state` is active, expired or revoked; `before` continues a list at its `next`.",
        {200: ("The keys.", types.Keys)},
        {**_KEYS, 400: "The query is not valid."},
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
        "They count from its next request on.",
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
        "Permanently; its streams end and its runs are stopped.",
        {204: ("It is revoked.", None)},
        _ONE_KEY,
    ),
    ("GET", "/api/use"): Operation(
        "getUse",
        "Show the tenant's use and limits",
        "The queries `from` and `to` are days in UTC, by default the last 30; `by` names what to sum by, separated by commas:"
        " day, key, agent, model (default: day).",
        {200: ("The sums and the limits.", types.UseOfTenant)},
        {
            400: "The query is not valid.",
            403: "The key lacks the scope use.",
            409: "The key is limited to agents, or is a token.",
            422: "The period or the groups are not valid.",
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
        "With the last answer of each. The query `before` continues a list at its `next`.",
        {200: ("The deliveries.", types.Deliveries)},
        _ONE,
    ),
    ("POST", "/api/webhooks/{webhook}/deliveries/{delivery}/repeat"): Operation(
        "repeatDelivery",
        "Send a delivery again",
        "Now, with the same id, and for another day if it fails.",
        {202: ("The delivery.", types.Delivery)},
        {**_ONE, 409: "The webhook is disabled."},
    ),
}


@functools.cache
def document() -> bytes:
    components = Components()
    problem = components.schema(problems.ProblemDocument)
    paths: dict[str, Schema] = {}
    for (method, address), operation in OPERATIONS.items():
        paths.setdefault(address, {})[method.lower()] = _operation(address, operation, components, problem)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Agenthost: management",
            "version": "1",
            "description": "What applications manage with a key, beside their sessions.",
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key of this server."}},
        },
    }
    return json.dumps(whole, ensure_ascii=False).encode()


def _operation(address: str, operation: Operation, components: Components, problem: Schema) -> Schema:
    answers: Schema = {}
    for status, (meaning, declared) in operation.answers.items():
        answers[str(status)] = {"description": meaning}
        if declared is not None:
            answers[str(status)]["content"] = {_JSON: {"schema": components.schema(declared)}}
    for status, meaning in sorted({**_EVERY, **operation.refusals}.items()):
        answers[str(status)] = {"description": meaning, "content": {problems.CONTENT_TYPE: {"schema": problem}}}
    found: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.text,
        "responses": answers,
    }
    names = [part[1:-1] for part in address.split("/") if part.startswith("{")]
    if names:
        found["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": components.schema(operation.body)}}}
    return found
