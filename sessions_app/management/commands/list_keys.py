"""list_keys: lists API keys by their prefixes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.core.tenancy import keys
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import ApiKey

_COLUMNS = ("NUMBER", "KEY", "TENANT", "NAME", "STATE", "SCOPES", "AGENTS", "EXPIRES", "LAST USED")


class Command(OperatorCommand):
    help = "Lists API keys: their first characters, rights and states. The keys themselves are not stored."
    examples = """
list_keys
list_keys acme --all
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", nargs="?", metavar="TENANT", help="only the keys of this tenant (its slug)")
        parser.add_argument("--all", action="store_true", help="include revoked and expired keys")

    def handle(self, *_args: Any, **options: Any) -> None:
        rows = ApiKey.objects.select_related("tenant").order_by("tenant__slug", "id")
        if options["tenant"] is not None:
            rows = rows.filter(tenant=self.tenant(options["tenant"]))
        shown = [key for key in rows.iterator(chunk_size=500) if options["all"] or keys.state_of(key) == "active"]
        if not shown:
            self.explain("There are no keys." if options["all"] else "There are no active keys (--all shows the others).")
            return
        table = [_COLUMNS, *(_line(key) for key in shown)]
        widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
        for row in table:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _line(key: ApiKey) -> tuple[str, ...]:
    state = keys.state_of(key)
    if state == "active" and key.tenant.suspended_at is not None:
        state = "suspended"
    return (
        str(key.pk),
        f"{key.prefix}…",
        key.tenant.slug,
        key.name,
        state,
        ",".join(keys.shown_scopes(key)),
        "all" if key.allowed_agents is None else ",".join(key.allowed_agents),
        _time(key.expires_at, "never"),
        _time(key.last_used_at, "never"),
    )


def _time(moment: datetime | None, otherwise: str) -> str:
    return otherwise if moment is None else f"{moment:%Y-%m-%d %H:%M}"
