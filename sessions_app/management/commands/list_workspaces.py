"""list_workspaces: lists workspaces with what they take."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.workspaces import transfers
from sessions_app.management.operator import OperatorCommand

_COLUMNS = ("TENANT", "ROOT", "BYTES", "FILES", "SESSIONS", "LAST USED")


class Command(OperatorCommand):
    help = "Lists workspaces: their roots, bytes, files and directories, the sessions that are bound to them, and their last use."
    examples = """
list_workspaces
list_workspaces acme --limit 5000
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", nargs="?", metavar="TENANT", help="only the workspaces of this tenant (its slug)")
        parser.add_argument("--limit", metavar="N", type=int, default=1000, help="the most lines (default: 1000)")

    def handle(self, *_args: Any, **options: Any) -> None:
        most = options["limit"]
        if most < 1:
            raise CommandError("--limit must be at least 1")
        tenant = None if options["tenant"] is None else self.tenant(options["tenant"])
        found = list(transfers.listing(tenant, min(most, 10**6) + 1))
        if not found:
            self.explain("There are no workspaces.")
            return
        lines = [
            (each.tenant, each.root, str(each.bytes), str(each.files), str(each.sessions), f"{each.used_at:%Y-%m-%d %H:%M}")
            for each in found[:most]
        ]
        table = [_COLUMNS, *lines]
        widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
        for row in table:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if len(found) > most:
            self.explain(f"There are more; --limit {most} was reached.")
