"""rotate_key: replaces an API key with a new one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from sessions_app.core.tenancy import keys
from sessions_app.management.durations import duration
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Issues a new key with the same rights; the old one expires after an overlap, during which both work. "
        "The new key is the last line of stdout and is shown only once."
    )
    examples = """
rotate_key ah_3fK2x9Qa
rotate_key 17 --overlap 0s
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", metavar="KEY", help="its first 11 characters or its number; list_keys shows both")
        parser.add_argument(
            "--overlap",
            type=duration,
            default=timedelta(days=1),
            metavar="1d",
            help="how long the old key stays valid (default: 1d)",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        old = self.key(options["key"])
        issued = keys.rotate(old, options["overlap"], actor=self.actor, address=self.address)
        until = "" if old.expires_at is None else f" The old key, {old.prefix}…, expires {old.expires_at:%Y-%m-%d %H:%M} UTC."
        self.explain(f"Issued a new key ({issued.key.name}) for {old.tenant.slug}. It is not shown again.{until}")
        self.stdout.write(issued.raw)
