"""Seal stored secrets anew under the newest key of the key ring."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.core.records import database_checks, options
from sessions_app.core.tenancy import definitions

_BATCH = 1000


class Command(BaseCommand):
    help = (
        "Seals every stored secret that an older key of AGENTHOST_KEY_RING sealed with the newest one."
        " To rotate: put a new key in front of the ring, restart everything, run this, then drop the old key."
        " Safe to interrupt and to run again while the server works."
    )

    def handle(self, *args: Any, **given: Any) -> None:  # noqa: ARG002 - Django's signature
        if faults := database_checks.key_faults():
            raise CommandError("\n".join(map(str, faults)))
        total, lost = definitions.reseal()
        while True:
            done, lost_options = options.reseal(_BATCH)
            if not done:
                break
            total += done
            self.stderr.write(f"{total} sealed anew …")
        # Last, so that the old key is asked for until everything is sealed under the new one.
        database_checks.reseal()
        self.stdout.write(f"{total} values were sealed anew.")
        if lost := lost + lost_options:
            raise CommandError(
                f"{lost} values stay as they are: no key of AGENTHOST_KEY_RING opens them. If their key is not lost, add it"
                " to the end of the ring and run this again."
            )
        self.stdout.write("All are under the newest key now.")
