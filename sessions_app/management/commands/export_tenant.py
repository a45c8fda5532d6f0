"""export_tenant: writes all sessions of a tenant into a directory, and continues where it was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.sessions import export_page, exporting
from sessions_app.management.drafts import draft
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import Session


class Command(OperatorCommand):
    help = (
        "Writes every session of a tenant into a directory, one JSON Lines file each (and a page each with --html), and an index."
        " Each session is read in one snapshot. If it is interrupted, the same command continues: sessions that have not changed"
        " since they were written are skipped. Secret options are masked. The export is recorded in the audit."
    )
    examples = """
export_tenant acme --output /backup/acme
export_tenant acme --output /backup/acme --html
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--output", metavar="DIRECTORY", required=True, help="the directory, which is made if needed")
        parser.add_argument("--html", action="store_true", help="also one page to read for each session")
        parser.add_argument("--no-files", action="store_true", help="leave out the files of workspaces")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        folder = Path(options["output"])
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"cannot make {folder}: {error.strerror}") from error
        form = "JSON Lines and HTML" if options["html"] else "JSON Lines"
        exporting.begin_tenant(tenant, actor=self.actor, address=self.address, form=form)
        written = skipped = 0
        with draft(folder / "index.jsonl") as index:
            for session in exporting.sessions_of(tenant):
                try:
                    if self._export(session, folder, options):
                        written += 1
                    else:
                        skipped += 1
                except SessionNotFound:
                    # Deleted since the list was read.
                    continue
                index.write(exporting.index_line(session))
                if self.stderr.isatty():
                    self.stderr.write(f"\r{written + skipped} sessions", ending="")
        self.explain(f"{written} sessions written to {folder}, {skipped} skipped: they had not changed.")

    def _export(self, session: Session, folder: Path, options: dict[str, Any]) -> bool:
        """False if the files of an earlier run are still true."""
        page, lines = folder / f"{session.public_id}.html", folder / f"{session.public_id}.jsonl"
        if lines.exists() and (page.exists() or not options["html"]):
            with lines.open("rb") as earlier:
                if exporting.is_current(session, earlier, files=not options["no_files"]):
                    return False
        if options["html"]:
            with draft(page) as file:
                for piece in export_page.page(exporting.records(session, files=False)):
                    file.write(piece)
        # Last, because it shows that the session is complete.
        with draft(lines) as file:
            exporting.write_lines(session, file, files=not options["no_files"])
        return True
