"""A session's dates and use, from the management API of this project's server. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any


@dataclass(frozen=True, slots=True)
class Use:
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None

    def since(self, before: Use) -> Use:
        cost = None if self.cost is None else self.cost - (before.cost or 0)
        return Use(self.input_tokens - before.input_tokens, self.output_tokens - before.output_tokens, cost)

    @property
    def is_nothing(self) -> bool:
        return not self.input_tokens and not self.output_tokens

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", cost {_number(self.cost)}"
        return f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out{cost}"


@dataclass(frozen=True, slots=True)
class SessionUse:
    modified_at: datetime | None
    use: Use


def read(document: Mapping[str, Any]) -> SessionUse:
    """What is missing or malformed is left out."""
    used = document.get("use")
    found = used if isinstance(used, dict) else {}
    return SessionUse(
        _time(document.get("modifiedAt")),
        Use(_count(found.get("inputTokens")), _count(found.get("outputTokens")), _decimal(found.get("cost"))),
    )


def date_text(when: datetime | None, now: datetime) -> str:
    """A time of today, or a date; in the zone of ``now``."""
    if when is None:
        return ""
    local = when.astimezone(now.tzinfo)
    if local.date() == now.date():
        return local.strftime("%H:%M")
    return local.strftime("%b %d" if local.year == now.year else "%Y-%m-%d")


def _number(value: Decimal) -> str:
    """With four significant digits, and never as an exponent."""
    if not value:
        return "0"
    rounded = round(value, max(2, 3 - value.adjusted()))
    return f"{rounded:,f}"


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0


def _decimal(value: Any) -> Decimal | None:
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        found = Decimal(value)
    except InvalidOperation:
        return None
    return found if found.is_finite() and abs(found.adjusted()) < 30 else None


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)
