"""accept_keys: lets a database be used with a key ring, a secret key or a volume of workspaces that it was not used with."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from sessions_app.core.records import database_checks
from sessions_app.core.workspaces import volume
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Accepts a key ring, a secret key or a volume of workspaces that this database was not used with: for lost keys and"
        " volumes, and for a secret key that is changed on purpose. To rotate keys without refusing anything, see"
        " docs/rotation.md."
    )
    examples = """
accept_keys --secret-key
accept_keys --key-ring
accept_keys --workspaces
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--key-ring",
            action="store_true",
            help="the previous AGENTHOST_KEY_RING is lost: secrets sealed with it stay unreadable, and turns that need them fail",
        )
        parser.add_argument(
            "--secret-key",
            action="store_true",
            help="AGENTHOST_SECRET_KEY was changed: what the previous one signed is accepted only while"
            " AGENTHOST_SECRET_KEY_FALLBACKS lists it",
        )
        parser.add_argument(
            "--workspaces",
            action="store_true",
            help="AGENTHOST_WORKSPACES_DIR is another volume on purpose: files of workspaces that are not on it are lost",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        chosen = {name: options[name] for name in ("key_ring", "secret_key")}
        if not any(chosen.values()) and not options["workspaces"]:
            raise CommandError("Give --key-ring, --secret-key or --workspaces.")
        if options["workspaces"]:
            if settings.AGENTHOST_WORKSPACES_DIR is None:
                raise CommandError("AGENTHOST_WORKSPACES_DIR is not set.")
            try:
                volume.accept(actor=self.actor, address=self.address)
            except OSError as error:
                raise CommandError(f"AGENTHOST_WORKSPACES_DIR cannot be used: {error.strerror}.") from None
        if any(chosen.values()):
            database_checks.accept(**chosen, actor=self.actor, address=self.address)
        self.explain("Accepted. Restart every process with the same keys.")
