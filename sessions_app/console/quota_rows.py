"""Limits with their usage for display: the share that is used, and when it resets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.core.tenancy.quotas import Use
from sessions_app.presentation import charts

_RESETS = {
    "turns_at_once": "when a turn ends",
    "turns_per_minute": "continuously, within a minute",
    "tokens_per_day": "at midnight UTC",
    "sessions": "when sessions are deleted",
    "stored_bytes": "when sessions or files are deleted",
    "request_bytes": "with each request",
}
NEAR = 0.8


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """``share``: the used share of the limit in percent; None without a limit or a count."""

    title: str
    used: str
    limit: str
    share: int | None
    resets: str

    @property
    def tone(self) -> str:
        if self.share is None or self.share < NEAR * 100:
            return "good"
        return "warn" if self.share < 100 else "bad"


def rows(uses: Sequence[Use]) -> list[QuotaRow]:
    return [_row(use) for use in uses]


def _row(use: Use) -> QuotaRow:
    shown = charts.byte_count if use.name.endswith("_bytes") else charts.exact
    share = None
    if use.used is not None and use.limit is not None:
        share = 100 * use.used // use.limit if use.limit else 100
    return QuotaRow(
        title=use.title,
        used="–" if use.used is None else shown(use.used),
        limit="no limit" if use.limit is None else shown(use.limit),
        share=share,
        resets=_RESETS.get(use.name, ""),
    )
