"""backup: writes the database and the files of workspaces into a new directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agenthost.backups import making, manifest
from agenthost.backups.errors import BackupError
from agenthost.backups.interrupts import ends_by_signals
from sessions_app.core.tenancy import audit
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Writes the database as of one moment, the files of workspaces, the agents file and a manifest into a new directory,"
        " while the server runs. The directory gets its name when it is complete. It has no keys. On Postgres it needs pg_dump."
    )
    examples = """
backup /backup/agenthost-2026-11-20
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="the new directory; its parent must have room")

    def handle(self, *_args: Any, **options: Any) -> None:
        target: Path = options["directory"]
        try:
            with ends_by_signals():
                named = str(target.absolute())[:200]
                audit.record(
                    actor=self.actor,
                    address=self.address,
                    action=audit.Action.DATABASE_BACKED_UP,
                    target=named,
                )
                made = making.make(target, self.explain)
        except BackupError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"cannot write {target}: {error.strerror}") from error
        for line in manifest.describe(made):
            self.stdout.write(line)
