"""import_workspace: unpacks an archive into a workspace."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.workspaces import transfers
from sessions_app.management.operator import OperatorCommand
from sessions_app.management.workspace_files import Progress, problems
from sessions_app.workspace import paths
from sessions_app.workspace.limits import amount


class Command(OperatorCommand):
    help = (
        "Unpacks a tar, tar.gz or zip file into a workspace that is empty, or that is made now; with --into, into a new"
        " directory of any workspace. Archives with links that lead out, hard links or special files are refused. If it fails,"
        " nothing is changed. The import is recorded in the audit."
    )
    examples = """
import_workspace acme file:///harbour harbour.tar.gz
import_workspace acme file:///workspace pictures.zip --into pictures/2026
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("uri", metavar="URI", help="the workspace's root: file:///harbour")
        parser.add_argument("file", metavar="FILE", type=Path, help="the archive: tar, tar.gz or zip")
        parser.add_argument("--into", metavar="DIR", default="", help="unpack into this new directory")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        show = self._show if self.stderr.isatty() else None
        path: Path = options["file"]
        with problems():
            into = paths.resolve((), options["into"].split("/"))
            paths.check(into)
            if options["into"] and not into:
                raise CommandError("--into names the root of the workspace; give the name of a new directory")
            with _opened(path, show) as file:
                uri, size, files = transfers.import_archive(
                    tenant, options["uri"], cast("IO[bytes]", file), into=into, actor=self.actor, address=self.address
                )
        self.explain(f"Imported into {uri}; its workspace has {files:,} files and directories, {amount(size)}.")
        self.stdout.write(uri)

    def _show(self, text: str) -> None:
        self.stderr.write(text, ending="")
        self.stderr.flush()


def _opened(path: Path, show: Callable[[str], object] | None) -> _Watched:
    try:
        if not path.is_file():
            raise CommandError(f"cannot read {path}: {'is not a file' if path.exists() else 'No such file or directory'}")
        return _Watched(path, show)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


class _Watched(io.FileIO):
    """A file that reports how far it was read."""

    def __init__(self, path: Path, show: Callable[[str], object] | None) -> None:
        super().__init__(path)
        self._progress = Progress("Read", show)

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size) or b""
        self._progress.reached(self.tell())
        return data

    def close(self) -> None:
        if not self.closed:
            self._progress.end()
        super().close()
