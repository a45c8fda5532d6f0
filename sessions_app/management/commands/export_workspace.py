"""export_workspace: writes the files of a workspace as a tar archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.workspaces import transfers
from sessions_app.management.drafts import draft
from sessions_app.management.operator import OperatorCommand
from sessions_app.management.workspace_files import Progress, problems
from sessions_app.workspace.limits import amount


class Command(OperatorCommand):
    help = (
        "Writes the files of a workspace, or of a directory in one, as a tar archive. Links that lead out of it and special"
        " files are left out. The export is recorded in the audit."
    )
    examples = """
export_workspace acme file:///workspace > workspace.tar
export_workspace acme file:///harbour/logs --output logs.tar
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("uri", metavar="URI", help="its root, or a directory in it: file:///harbour")
        parser.add_argument("--output", metavar="FILE", default="-", help="the output file (default: -, standard output)")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        show = self._show if self.stderr.isatty() else None
        with problems(), self._opened(options["output"]) as file, closing(_Counted(file, show)) as out:
            transfers.export(tenant, options["uri"], cast("IO[bytes]", out), actor=self.actor, address=self.address)
        self.explain(f"Exported {amount(out.size)}.")

    def _show(self, text: str) -> None:
        self.stderr.write(text, ending="")
        self.stderr.flush()

    @contextmanager
    def _opened(self, output: str) -> Iterator[IO[bytes]]:
        """A file gets its name when it is complete."""
        if output == "-":
            if self.stdout.isatty():
                raise CommandError("An archive is not written to a terminal: give --output FILE.")
            yield cast("IO[bytes]", self.stdout.buffer)
            return
        path = Path(output)
        if path.exists() and not path.is_file():
            try:
                with path.open("wb") as file:
                    yield file
            except OSError as error:
                raise CommandError(f"cannot write {path}: {error.strerror}") from error
            return
        with draft(path) as file:
            yield file


class _Counted:
    def __init__(self, file: IO[bytes], show: Any) -> None:
        self._file = file
        self._progress = Progress("Exported", show)
        self.size = 0

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self.size += len(data)
        self._progress.reached(self.size)
        return len(data)

    def close(self) -> None:
        self._progress.end()
        self._file.flush()
