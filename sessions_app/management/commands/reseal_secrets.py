"""reseal_secrets: encrypts stored secrets with the newest key of the key ring."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.accounts import second_factor
from sessions_app.core.records import database_checks, options
from sessions_app.core.tenancy import audit_keys, definitions, webhooks

_BATCH = 1000


class Command(BaseCommand):
    help = (
        "Encrypts every stored secret with the newest key of AGENTHOST_KEY_RING."
        " To rotate: put a new key in front of the ring, restart all processes, run this, then remove the old key."
        " It can be interrupted and run again while the server is running."
    )

    def handle(self, *args: Any, **given: Any) -> None:  # noqa: ARG002 - Django's signature
        if faults := database_checks.key_faults():
            raise CommandError("\n".join(map(str, faults)))
        total, lost = definitions.reseal()
        for more in (second_factor.reseal, audit_keys.reseal, webhooks.reseal):
            of_more, lost_more = more()
            total, lost = total + of_more, lost + lost_more
        while True:
            done, lost_options = options.reseal(_BATCH)
            if not done:
                break
            total += done
            self.stderr.write(f"{total} resealed …")
        # Last, so that the old key stays required until everything is sealed with the new one.
        database_checks.reseal()
        self.stdout.write(f"{total} values were resealed.")
        if lost := lost + lost_options:
            raise CommandError(
                f"{lost} values were not changed: no key of AGENTHOST_KEY_RING decrypts them. If their key is not lost, add it"
                " to the end of the ring and run this again."
            )
        self.stdout.write("All values are sealed with the newest key.")
