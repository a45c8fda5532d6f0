"""Seal stored secrets anew under the newest key of the key ring."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from sessions_app.core import definitions, installation, options

_BATCH = 1000


class Command(BaseCommand):
    help = (
        "Seals every stored secret that an older key of AGENTHOST_KEY_RING sealed with the newest one."
        " To rotate: put a new key in front of the ring, restart everything, run this, then drop the old key."
        " Safe to interrupt and to run again while the server works."
    )

    def handle(self, *args: Any, **given: Any) -> None:  # noqa: ARG002 - Django's signature
        total = definitions.reseal()
        while done := options.reseal(_BATCH):
            total += done
            self.stderr.write(f"{total} sealed anew …")
        # Last, so that the old key is asked for until everything is sealed under the new one.
        installation.reseal()
        self.stdout.write(f"{total} values were sealed anew; all are under the newest key now.")
