"""prune_audit: deletes old audit records at a seal, so that the rest can still be verified."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import ProgrammingError

from sessions_app.core.tenancy import audit_chain
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Deletes audit records up to the last daily seal before a day. What remains can be verified, and begins with that seal."
        " Recorded in the audit. The server's database role may not do this: run it as the role that owns the tables."
    )
    examples = """
prune_audit --before 2026-01-01
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--before", required=True, metavar="DAY", type=date.fromisoformat, help="as 2026-01-01, in UTC")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            number = audit_chain.prune(options["before"], actor=self.actor, address=self.address)
        except ProgrammingError:
            raise CommandError(
                "This database role may not delete audit records. Set DATABASE_URL to the role that owns the tables."
            ) from None
        self.explain(f"{number} records were deleted.")
