"""Classifies the errors of model servers. Pure.

Vendors report the kind of an error in the HTTP status, in ``code``, ``type`` or ``status``, or only in the message. Only
short tokens are kept, because a message may quote a user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agents_app.errors import ProviderFault

_CONTEXT_WORDS = re.compile(
    r"context[_ -]?(length|window|size|limit)|maximum context|"
    r"(prompt|input|request|messages?)[^.]{0,40} (is|are) too (long|large)|too many (input )?tokens|"
    r"reduce the length|(input|prompt) tokens? (count|limit)|exceeds? the (maximum|available|model)[^.]{0,40}(tokens|context)|"
    r"too large for model|request_too_large|maximum (model|prompt|sequence|input) length|exceed(s|ed)? (model )?token limit|"
    r"range of input length|prompt exceeds max|must have less than \d+ tokens|max_new_tokens. must be <=",
    re.IGNORECASE,
)
_PASSING_WORDS = re.compile(
    "server|overload|rate|timeout|api_error|internal|unavailable|throttl|exhausted|capacity|not_?ready", re.IGNORECASE
)
_DECLINED_WORDS = re.compile(
    r"content[_ -]?(filter|(management )?policy)|usage policy|data_?inspection|responsible_?ai|invalid_prompt|"
    r"(bio|misalignment)_policy|(input|prompt|content)[^.]{0,40} flagged|flagged_input",
    re.IGNORECASE,
)
_KEY_WORDS = re.compile("api[_ ]key[_ ](not[_ ]valid|invalid|expired)", re.IGNORECASE)
_TOKEN = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class ServerError(Exception):
    """An error that the server sent. ``code`` can be logged; the message cannot.

    ``wait``: the seconds until a retry, if the error itself contains them.
    """

    def __init__(self, fault: ProviderFault, code: str, *, passing: bool, wait: float | None = None) -> None:
        self.fault, self.code, self.passing, self.wait = fault, code, passing, wait
        super().__init__(code)


class MalformedStream(Exception):
    """The stream has data that is not an event of its format."""


def classified(error: Any, status: int | None = None) -> ServerError:
    """The classified error of a server; ``status``: the response's status, if it was not 200."""
    fields: Mapping[str, Any] = error if isinstance(error, dict) else {}
    code = " ".join(token(fields.get(name)) for name in ("code", "type", "status") if token(fields.get(name)))
    text = fields.get("message") or fields.get("detail") or (error if isinstance(error, str) else "")
    words = f"{code} {text}"[:10_000]
    number = status if status is not None else _status(fields.get("code"))
    if (number == 0 or 400 <= number < 500) and number not in (401, 429) and _DECLINED_WORDS.search(words):
        return ServerError("declined", code, passing=False)
    if number in (401, 403) or (number == 400 and _KEY_WORDS.search(words)):
        return ServerError("configuration", code, passing=False)
    # Rate limits mention tokens too.
    if number != 429 and "rate" not in code and _CONTEXT_WORDS.search(words):
        return ServerError("context_too_long", code, passing=False)
    passing = number in (408, 429) or number >= 500 or (number == 0 and bool(_PASSING_WORDS.search(code)))
    # An empty account is reported as 429 too, and retries do not help.
    passing = passing and "insufficient_quota" not in code
    unavailable = passing or number == 429 or number == 0
    return ServerError("unavailable" if unavailable else "refused_request", code, passing=passing)


def token(value: Any) -> str:
    """``value`` if it looks like a code or type; empty for free text, which may quote a user."""
    text = str(value) if isinstance(value, str | int) else ""
    return text if _TOKEN.fullmatch(text) else ""


def _status(code: Any) -> int:
    try:
        number = int(code)
    except (TypeError, ValueError):
        return 0
    return number if 400 <= number <= 599 else 0
