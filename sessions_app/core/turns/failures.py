"""Why a turn failed: facts for operators, a code for clients whose own key, limit or model was the cause, and what can pass.

Pure. Only facts, never the provider's text, which may quote a secret or a user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agents_app import options, redaction
from agents_app.errors import Answered, ProviderError
from agents_app.spec import AgentSpec

FAILED = "provider_failed"
KEY_REFUSED, LIMIT_REACHED, MODEL_UNKNOWN = "provider_key_refused", "provider_limit_reached", "provider_model_unknown"
OF_CLIENTS = frozenset({KEY_REFUSED, LIMIT_REACHED, MODEL_UNKNOWN})
"""Codes of failures that a client caused by its own key or model, and can repair."""

_PASSING = frozenset({"unavailable", "timeout", "broken_stream"})
"""Faults of a provider after which the same request may succeed."""
_EMPTY_ACCOUNT = ("insufficient_quota", "insufficient_balance", "billing")
_PASSING_CODES = frozenset({"interrupted", "limit", "internal", "quota_tokens"})
"""Codes of failures that are not a provider's, after which the turn can go on from its last finished step.

``quota_tokens``: whether tokens are left is judged when it is to go on. Not here: limits of the whole turn.
"""
_LIMIT = ("insufficient_quota", "insufficient_balance", "rate_limit", "billing", "resource_exhausted")
_UNKNOWN_MODEL = ("model_not_found", "model_not_available", "unknown_model", "invalid_model", "modelnotfounderror")
_STATUSES = ("400", "401", "402", "403", "404", "429")
MOST_ATTEMPTS = 32
"""A turn that has failed this often cannot go on any more."""
_LONGEST_CODE = 200
_LONGEST_HOST = 255
_FRAMES = 5


def facts(error: ProviderError, full_model: str) -> dict[str, Any]:
    """The facts that are stored with the turn. ``full_model``: the agent's, as ``provider:model``."""
    answered = error.answered
    found: dict[str, Any] = {
        "kind": error.fault,
        "provider": full_model.partition(":")[0],
        "attempts": answered.attempts,
        "after_output": answered.after_output,
    }
    if answered.host:
        found["host"] = answered.host[:_LONGEST_HOST]
    if answered.status is not None:
        found["status"] = answered.status
    if answered.code:
        found["code"] = answered.code[:_LONGEST_CODE]
    if answered.retry_after is not None and math.isfinite(answered.retry_after):
        found["retry_after"] = max(0, math.ceil(answered.retry_after))
    return found


def internal(error: Exception) -> dict[str, Any]:
    """The facts of an internal failure: the exception's classes, and the innermost places in the code. Never its message."""
    _, *places = redaction.without_source(error).splitlines()
    return {"kind": "internal", "exception": redaction.kinds(error), "frames": [each.strip() for each in places[-_FRAMES:]]}


def code_of(error: ProviderError, spec: AgentSpec, set_by_client: Mapping[str, str]) -> str:
    """The turn's public error code. More specific than ``FAILED`` only if the client set the key, or chose the model, itself.

    ``set_by_client``: the session's own option values.
    """
    own = {name for name, value in set_by_client.items() if value and value != options.UNCHANGED_SECRET}
    status, code = _status(error.answered), error.answered.code.lower()
    if own.intersection(options.places(spec.model, set_by_client)) and (status == 404 or _has_any(code, _UNKNOWN_MODEL)):
        return MODEL_UNKNOWN
    credentials = [spec.api_key or "", *spec.headers.values()]
    if own.intersection(name for each in credentials for name in options.places(each, set_by_client)):
        # Some providers answer 400 for an invalid key; the fault "configuration" shows that the key was the cause.
        if error.fault == "configuration" and status in (400, 401, 403):
            return KEY_REFUSED
        # 402: the account's balance is used up.
        if status in (402, 429) or _has_any(code, _LIMIT):
            return LIMIT_REACHED
    return FAILED


def may_pass(error: str, provider: ProviderError | None) -> bool:
    """Whether a turn that failed with this code could go on. ``provider``: the provider's error, if that was the cause."""
    if provider is None:
        return error in _PASSING_CODES
    answered = provider.answered
    is_empty = _status(answered) == 402 or _has_any(answered.code.lower(), _EMPTY_ACCOUNT)
    return provider.fault in _PASSING and not is_empty


def has_room(step: int, most_steps: int | None, attempt: int) -> bool:
    """Whether a turn with so many steps could have another one. ``most_steps`` None: the limit is not known."""
    return attempt < MOST_ATTEMPTS and (most_steps is None or step < most_steps)


def _status(answered: Answered) -> int | None:
    """The response's status. For an error in the middle of a stream, the status in its code, where vendors put it."""
    if answered.status is not None:
        return answered.status
    return next((int(word) for word in answered.code.split() if word in _STATUSES), None)


def _has_any(code: str, words: Sequence[str]) -> bool:
    return any(word in code for word in words)
