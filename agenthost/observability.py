"""Log filters and formatters: context ids, JSON or readable lines, masked secrets."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from datetime import UTC, datetime

import orjson

from sessions_app.core.base import log_context

_MASKS = (
    # A key of this server. Its prefix stays, so that an operator can find the key in the admin.
    (re.compile(r"\b(ah_[A-Za-z0-9]{0,8})[A-Za-z0-9_\-]*"), r"\1…"),
    (re.compile(r"(?i)(\bbearer\s+)(?!ah_)[^\s\"',;]+"), r"\1…"),
    (re.compile(r"(?i)((?:[?&;]|\b)(?:token|tkn|access_token|api_key)=)[^&\s\"'#;]+"), r"\1…"),
    # Passwords in URLs: redis://:password@host, postgres://user:password@host.
    (re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^\s/:@]*:)[^\s/@]+(@)"), r"\1…\2"),
)


# Every text that a mask applies to contains one of these. Most log lines contain none, which saves the regular expressions.
_HINTS = ("ah_", "bearer", "=", "://")


def masked(text: str) -> str:
    """The text with keys, tokens and passwords in URLs masked."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


# Each record would look these up. No line has the thread, and the process is known.
logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
_pid = os.getpid()


def _after_fork() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)


def log_cheaply(logger: logging.Logger, message: str, *arguments: object) -> None:
    """``logger.info`` without looking for the place of the call in the code, for the line of each request."""
    if logger.isEnabledFor(logging.INFO):
        logger.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, message, arguments, None))


class ContextFilter(logging.Filter):
    """Adds the ids of the current log context (request, session, turn) to the record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.agenthost_facts = {**_child, **log_context.facts()}
        return True


class MaskingFilter(logging.Filter):
    """Masks keys and tokens in the message. The formatters mask tracebacks, because they render them."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg = masked(record.getMessage())
        except (TypeError, ValueError):
            record.msg = masked(f"{record.msg} (the arguments do not match the format)")
        record.args = None
        record.agenthost_masked = True
        return True


class ConnectionAttemptsFilter(logging.Filter):
    """Drops the pool's line for each connection attempt; agenthost.postgres logs database_away and database_back instead."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(("error connecting in", "reconnection attempt in"))


class RepeatsFilter(logging.Filter):
    """Drops a line if the same message was logged within ``SECONDS``, whatever its arguments.

    For Celery's consumer, which retries several times a second while its broker refuses it.
    """

    SECONDS = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}
        """By format string. The library has few of them, so the dict stays small."""

    def filter(self, record: logging.LogRecord) -> bool:
        message, now = str(record.msg), time.monotonic()
        if now - self._logged_at.get(message, float("-inf")) < self.SECONDS:
            return False
        self._logged_at[message] = now
        return True


class ReadableFormatter(logging.Formatter):
    """Readable lines, for a terminal."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        line = masked(super().format(record))
        facts: dict[str, str] = getattr(record, "agenthost_facts", {})
        if not facts:
            return line
        first, separator, rest = line.partition("\n")
        return f"{first} [{' '.join(f'{name}={value}' for name, value in facts.items())}]{separator}{rest}"


_child: dict[str, str] = {}


def set_child(number: int) -> None:
    """Add the number of a forked process (``--processes``) to each of its log lines."""
    _child["child"] = str(number)


_JSON = json.JSONEncoder(default=str)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.msg if hasattr(record, "agenthost_masked") else masked(record.getMessage()),
            "pid": _pid,
            **getattr(record, "agenthost_facts", {}),
        }
        if record.exc_info and record.exc_info != (None, None, None):
            fields["error"] = masked(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = masked(record.stack_info)
        try:
            return orjson.dumps(fields, default=str).decode()
        except TypeError:
            # A text that is not valid Unicode.
            return _JSON.encode(fields)


def writes_json() -> bool:
    """Whether log lines are JSON objects."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def report_fatal(message: str) -> None:
    """Write to stderr why the process does not start. Works before logging is configured."""
    sys.stderr.write(f"agenthost: {masked(message)}\n")
