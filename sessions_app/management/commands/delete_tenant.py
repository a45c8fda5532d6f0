"""delete_tenant: deletes everything that is stored of a tenant, with progress, and prints a signed certificate."""

from __future__ import annotations

import sys
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.sessions import tenant_deletion
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import TenantDeletion

_SECONDS = 2.0
_IDLE_SECONDS = 60.0


class Command(OperatorCommand):
    help = (
        "Deletes everything that is stored of a tenant: sessions, files, terminals, keys, usage. Its keys are refused at once."
        " The work is done in batches; if it is interrupted, housekeeping continues it, or this command when it is started"
        " again. At the end a signed certificate with counts and hashes is printed. It cannot be taken back. The audit stays."
    )
    examples = """
export_tenant acme --output /backup/acme
delete_tenant acme --confirm acme > acme.certificate.json
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--confirm", metavar="TENANT", help="the slug once more, instead of being asked for it")

    def handle(self, *_args: Any, **options: Any) -> None:
        slug: str = options["tenant"]
        deletion = TenantDeletion.objects.filter(slug=slug).order_by("-pk").first()
        if deletion is None or deletion.finished_at is not None:
            tenant = self.tenant(slug)
            confirmed = options["confirm"]
            if confirmed is None and sys.stdin.isatty():
                confirmed = input(f"This deletes everything of {slug}, for ever. Type its slug to confirm: ").strip()
            if confirmed != slug:
                raise CommandError(f"Nothing was deleted. To confirm, give: --confirm {slug}")
            deletion = tenant_deletion.begin(tenant, actor=self.actor, address=self.address)
        self._run(deletion)
        self.stdout.write(TenantDeletion.objects.values_list("certificate", flat=True).get(pk=deletion.pk))

    def _run(self, deletion: TenantDeletion) -> None:
        progressed, last = time.monotonic(), ""
        while not tenant_deletion.advance(deletion, _SECONDS):
            deletion.refresh_from_db(fields=["counts"])
            self.explain(f"{tenant_deletion.remaining(deletion)} sessions left")
            if deletion.counts != last:
                progressed, last = time.monotonic(), deletion.counts
            elif time.monotonic() - progressed > _IDLE_SECONDS:
                raise CommandError(
                    "Nothing could be deleted for a minute: is the volume of the workspaces there, and is nothing locked?"
                    " Housekeeping tries again, and so does this command."
                )
            time.sleep(0.1)
