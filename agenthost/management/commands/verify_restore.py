"""verify_restore: completes and checks a database that was restored, before processes start on it."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agenthost.backups import completing
from agenthost.backups.errors import BackupError
from agenthost.doctor import findings
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Completes a restored database before the first process starts on it: event numbers leave what clients have seen since"
        " the backup, turns that were running end, secrets and the audit are checked. Restore does this itself; run it after a"
        " restore by other means (pg_basebackup, a snapshot of the volume) and after migrating a restored backup. Exit code 1 if"
        " a check fails."
    )
    examples = """
verify_restore
verify_restore --keep-turns
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--keep-turns",
            action="store_true",
            help="turns that were queued or running go on as after a crash; models and tools may be called again",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        self.complete(keep_turns=options["keep_turns"])

    def complete(self, *, keep_turns: bool) -> None:
        wish = completing.Wish(self.actor, self.address, keep_turns)
        found = []
        try:
            for finding in completing.complete(wish, self.explain):
                found.append(finding)
                self.stdout.write(findings.line(finding))
        except BackupError as error:
            raise CommandError(str(error)) from error
        if findings.exit_code(found):
            sys.exit(1)
