"""restore: loads a backup into an empty database and completes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agenthost.backups import manifest, restoring
from agenthost.backups.errors import BackupError
from agenthost.backups.interrupts import ends_by_signals
from agenthost.management.commands import verify_restore


class Command(verify_restore.Command):
    help = (
        "Restores a backup into an empty database and volume: checks manifest, hashes, keys and release before anything is"
        " written, loads it, and completes it as verify_restore does. If it is interrupted, the same command continues."
    )
    examples = """
restore /backup/agenthost-2026-11-20
restore /backup/agenthost-2026-11-20 --check
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="the backup")
        parser.add_argument("--check", action="store_true", help="only check whether this backup could be restored here")
        parser.add_argument(
            "--lost-keys", action="store_true", help="also if sealing keys are lost: what they sealed stays unreadable"
        )
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        folder: Path = options["directory"]
        try:
            with ends_by_signals():
                if options["check"]:
                    for line in manifest.describe(restoring.check(folder, self.explain, lost_keys=options["lost_keys"])):
                        self.stdout.write(line)
                    self.stdout.write("The backup can be restored with these settings.")
                    return
                loaded = restoring.load(folder, self.explain, lost_keys=options["lost_keys"])
        except BackupError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename or folder}: {error.strerror}") from error
        if loaded.needs_migration:
            self.stdout.write(restoring.next_step(loaded))
            return
        self.complete(keep_turns=options["keep_turns"])
