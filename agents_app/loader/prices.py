"""Reads the prices of models from ``[agents.price."model"]``, per million tokens."""

from __future__ import annotations

from agents_app.loader.table import Table
from agents_app.spec import Price


def read(table: Table) -> dict[str, Price]:
    listed = table.table("price")
    found: dict[str, Price] = {}
    for model in listed.names():
        entry = listed.table(model)
        given, taken = entry.amount("input", required=True), entry.amount("output", required=True)
        found[model] = Price(given or 0.0, taken or 0.0, entry.amount("cache_read"))
        entry.refuse_unknown()
    return found
