"""accept_keys: lets a database start with a key ring or a secret key that it was not used with."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.records import database_checks
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Accepts a key ring or a secret key that this database was not used with: for lost keys, and for a secret key that is"
        " changed on purpose. To replace a key of the ring that you still have, see reseal_secrets."
    )
    examples = """
accept_keys --secret-key
accept_keys --key-ring
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
            help="AGENTHOST_SECRET_KEY was changed: admin users must sign in again; clients' positions and cursors are refused",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        chosen = {name: options[name] for name in ("key_ring", "secret_key")}
        if not any(chosen.values()):
            raise CommandError("Give --key-ring, --secret-key, or both.")
        database_checks.accept(**chosen, actor=self.actor, address=self.address)
        self.explain("Accepted. Restart every process with the same keys.")
