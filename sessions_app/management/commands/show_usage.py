"""show_usage: shows the usage and limits of a tenant."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from sessions_app.core.tenancy import keys, quotas
from sessions_app.core.tenancy.quotas import Use
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import ApiKey


class Command(OperatorCommand):
    help = "Shows the current usage and limits of a tenant, with --keys also those of its keys."
    examples = """
show_usage acme
show_usage acme --keys
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--keys", action="store_true", help="include each active key")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        rows = [("OWNER", "QUOTA", "USED", "LIMIT"), *(_line(tenant.slug, use) for use in quotas.usage(tenant))]
        if options["keys"]:
            for key in ApiKey.objects.filter(keys.active(), tenant=tenant).order_by("pk"):
                rows += [_line(f"{key.prefix}…", use) for use in quotas.usage(tenant, key)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        days = tenant.session_retention_days
        self.explain(f"Sessions are kept {'forever' if days is None else f'until unused for {days} days'}.")


def _line(owner: str, use: Use) -> tuple[str, str, str, str]:
    return (
        owner,
        use.title,
        "-" if use.used is None else str(use.used),
        "no limit" if use.limit is None else str(use.limit),
    )
