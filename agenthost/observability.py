"""Log lines: who they are about, as JSON or readable, without keys."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime

from sessions_app.core.base import log_context

_MASKS = (
    # A key of ours, but for the prefix by which an operator finds it in the admin.
    (re.compile(r"\b(ah_[A-Za-z0-9]{0,8})[A-Za-z0-9_\-]*"), r"\1…"),
    (re.compile(r"(?i)(\bbearer\s+)(?!ah_)[^\s\"',;]+"), r"\1…"),
    (re.compile(r"(?i)((?:[?&;]|\b)(?:token|tkn|access_token|api_key)=)[^&\s\"'#;]+"), r"\1…"),
    # Passwords in addresses: redis://:password@host, postgres://user:password@host.
    (re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^\s/:@]*:)[^\s/@]+(@)"), r"\1…\2"),
)


# One of these stands in whatever a mask is for. Most lines have none of them: there is one for each request.
_SIGNS = ("ah_", "bearer", "=", "://")


def masked(text: str) -> str:
    """The text without keys, tokens and passwords in addresses."""
    lowered = text.lower()
    if not any(sign in lowered for sign in _SIGNS):
        return text
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


class ContextFilter(logging.Filter):
    """Writes the ids that are known where the line was logged on the record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.agenthost_facts = log_context.facts()
        return True


class MaskingFilter(logging.Filter):
    """Masks keys and tokens in the message; tracebacks are masked by the formatters, which make them."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg = masked(record.getMessage())
        except (TypeError, ValueError):
            record.msg = masked(f"{record.msg} (its arguments do not fit)")
        record.args = None
        return True


class AttemptsFilter(logging.Filter):
    """Drops the line for each attempt to reach Postgres: agenthost.postgres logs when it is away and when it is back."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(("error connecting in", "reconnection attempt in"))


class RepeatsFilter(logging.Filter):
    """Drops a line if one of its kind was written within ``SECONDS``, whatever its arguments.

    For Celery's consumer: one that its broker refuses tries again several times a second, for as long as that lasts.
    """

    SECONDS = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, float] = {}
        """By text without arguments; those are the library's own, and few."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = str(record.msg), time.monotonic()
        if now - self._written.get(kind, float("-inf")) < self.SECONDS:
            return False
        self._written[kind] = now
        return True


class ReadableFormatter(logging.Formatter):
    """One line for a person at a terminal."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        line = masked(super().format(record))
        facts: dict[str, str] = getattr(record, "agenthost_facts", {})
        if not facts:
            return line
        first, separator, rest = line.partition("\n")
        return f"{first} [{' '.join(f'{name}={value}' for name, value in facts.items())}]{separator}{rest}"


_JSON = json.JSONEncoder(ensure_ascii=False, default=str)


class JsonFormatter(logging.Formatter):
    """One JSON object a line for a collector."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": masked(record.getMessage()),
            "pid": record.process,
            **getattr(record, "agenthost_facts", {}),
        }
        if record.exc_info and record.exc_info != (None, None, None):
            fields["error"] = masked(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = masked(record.stack_info)
        return _JSON.encode(fields)


def report_fatal(message: str) -> None:
    """Says on stderr why the process does not start, before or without logging being set up."""
    sys.stderr.write(f"agenthost: {masked(message)}\n")
