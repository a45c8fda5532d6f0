"""Reads the model that makes an agent's summaries from its file."""

from __future__ import annotations

from agents_app.loader import headers
from agents_app.loader.table import Table
from agents_app.spec import SummarySpec


def read(table: Table) -> SummarySpec:
    given = table.table("summary")
    made = SummarySpec(
        model=given.text("model"),
        api_key=given.text("api_key"),
        base_url=given.text("base_url"),
        headers=headers.read(given),
        context_tokens=given.whole("context_tokens", 0) or None,
    )
    given.refuse_unknown()
    return made
