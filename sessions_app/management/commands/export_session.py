"""export_session: writes a session as JSON Lines, or as a page to read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.sessions import export_page, exporting
from sessions_app.management.drafts import draft
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import Session


class Command(OperatorCommand):
    help = (
        "Writes everything that is stored of a session as JSON Lines, with its images and the files of its workspace, or as one"
        " HTML page. Secret options are masked. The export is recorded in the audit."
    )
    examples = """
export_session acme sess_8Jq3mVt5rXw2kLd9 > session.jsonl
export_session acme sess_8Jq3mVt5rXw2kLd9 --html --output session.html
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("session", metavar="SESSION", help="its id, as AAP shows it")
        parser.add_argument("--html", action="store_true", help="one page to read, without the workspace's files")
        parser.add_argument("--no-files", action="store_true", help="leave out the files of the workspace")
        parser.add_argument("--output", metavar="FILE", default="-", help="the output file (default: -, standard output)")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        session = Session.objects.filter(tenant=tenant, public_id=options["session"]).first()
        if session is None:
            raise CommandError(f"{tenant.slug} has no session {options['session']!r}.")
        exporting.begin(session, actor=self.actor, address=self.address, form="HTML" if options["html"] else "JSON Lines")
        if options["output"] == "-":
            self._write(session, cast("IO[bytes]", getattr(self.stdout, "buffer", sys.stdout.buffer)), options)
            return
        with draft(Path(options["output"])) as file:
            self._write(session, file, options)

    @staticmethod
    def _write(session: Session, out: IO[bytes], options: dict[str, Any]) -> None:
        if options["html"]:
            for piece in export_page.page(exporting.records(session, files=False)):
                out.write(piece)
        else:
            exporting.write_lines(session, out, files=not options["no_files"])
