"""reseal_secrets: encrypts stored secrets with the newest key of the key ring."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.core.base import sealing
from sessions_app.core.records import database_checks
from sessions_app.management import sealed_values

_PROGRESS_SECONDS = 5.0


class Command(BaseCommand):
    help = (
        "Encrypts every stored secret with the newest key of AGENTHOST_KEY_RING. Before it, every process must have the new key"
        " (docs/rotation.md). It can be interrupted and run again while the server is running; it continues with what is left."
    )

    def handle(self, *args: Any, **given: Any) -> None:  # noqa: ARG002 - Django's signature
        if faults := database_checks.key_faults():
            raise CommandError("\n".join(map(str, faults)))
        wanted = sealed_values.outdated(sealed_values.counts_by_key())
        total = lost = 0
        shown = time.monotonic()
        for kind in sealed_values.KINDS:
            for done, unreadable in kind.reseal():
                total, lost = total + done, lost + unreadable
                if time.monotonic() - shown >= _PROGRESS_SECONDS:
                    shown = time.monotonic()
                    self.stderr.write(f"{total} of {wanted} resealed …")
        # Last, so that the old key stays required until everything is sealed with the new one.
        database_checks.reseal()
        self.stdout.write(f"{total} values were resealed.")
        if lost:
            raise CommandError(
                f"{lost} values were not changed: no key of AGENTHOST_KEY_RING decrypts them. If their key is not lost, add it"
                " to the end of the ring and run this again."
            )
        if left := sealed_values.outdated(sealed_values.counts_by_key()):
            raise CommandError(
                f"{left} values were sealed with an older key meanwhile: a process still has that one first in its ring. Give all"
                f" processes the ring that begins with {sealing.key_ids()[0]}, and run this again."
            )
        self.stdout.write("All values are sealed with the newest key.")
