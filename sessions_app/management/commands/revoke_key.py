"""revoke_key: revokes an API key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from sessions_app.core import turns
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Revokes an API key: it is refused from now on, its streams are closed and its runs are stopped. "
        "This cannot be undone; to replace a key use rotate_key."
    )
    examples = """
revoke_key ah_3fK2x9Qa
revoke_key 17
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", metavar="KEY", help="its first 11 characters or its number; list_keys shows both")

    def handle(self, *_args: Any, **options: Any) -> None:
        key = self.key(options["key"])
        refusal = turns.revoke_key(key, actor=self.actor, address=self.address)
        if refusal.changed:
            self.explain(f"Revoked the key {key.prefix}… ({key.name}) of {key.tenant.slug}.")
        else:
            self.explain(f"The key {key.prefix}… ({key.name}) of {key.tenant.slug} was revoked already.")
        if refusal.remark:
            self.explain(refusal.remark)
