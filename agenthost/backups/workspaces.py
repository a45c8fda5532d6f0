"""The files of workspaces in a backup: one tar file for each tree, and a list of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from agenthost.backups import streams
from agenthost.backups.errors import BackupError
from agenthost.backups.streams import Part, Progress, new_file
from sessions_app.core.workspaces import owners, places
from sessions_app.workspace import archive
from sessions_app.workspace.errors import FileError, Missing
from sessions_app.workspace.tree import Tree

FILE = "workspaces.jsonl"
_UNLIMITED = archive.Limits(files=10**9, bytes=2**62, seconds=10**9)
"""Programs may have written more than the quotas. What is unpacked was checked by its hash and its list."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

Named = tuple[int, str]
"""A workspace: the number of its tenant, and its public id."""


def dump(folder: Path, wanted: Sequence[Named], progress: Progress) -> tuple[Part, dict[str, int]]:
    """Write the trees that exist now; the list of them, and how many workspaces and bytes they are."""
    count = total = 0
    with new_file(folder, FILE, progress) as listing:
        for tenant, public_id in wanted:
            tree = Tree(places.directory_of(tenant, public_id))
            if not tree.exists():
                # Not used yet, or removed since.
                continue
            with new_file(folder, _file_of(tenant, public_id), progress) as file:
                try:
                    archive.export(tree, cast(IO[bytes], file), limits=_UNLIMITED)
                except Missing:
                    continue
                except FileError as error:
                    raise BackupError(f"the workspace {public_id} of tenant {tenant} cannot be read: {error}") from error
                part = file.close()
            listing.write(json.dumps({"tenant": tenant, "workspace": public_id, **asdict(part)}).encode() + b"\n")
            count, total = count + 1, total + part.bytes
        return listing.close(), {"workspaces": count, "bytes": total}


def parts(folder: Path) -> Iterator[tuple[Named, Part]]:
    """The trees of a backup whose list was checked."""
    with (folder / FILE).open() as lines:
        for line in lines:
            found: dict[str, Any] = json.loads(line)
            tenant, public_id = int(found["tenant"]), str(found["workspace"])
            if not _ID.fullmatch(public_id) or found["file"] != _file_of(tenant, public_id):
                raise BackupError(f"{folder / FILE} is damaged: it names the workspace {public_id[:64]!r}.")
            yield (tenant, public_id), Part(found["file"], found["bytes"], found["sha256"])


def check(folder: Path, progress: Progress) -> None:
    for _, part in parts(folder):
        streams.check(folder, part, progress)


def restore(folder: Path, progress: Progress) -> tuple[int, int]:
    """Unpack the trees that the volume does not have; how many were unpacked, and how many were left as they are.

    A tree gets its name when it is complete, so a restore that is killed can be repeated.
    """
    done = kept = 0
    for (tenant, public_id), part in parts(folder):
        directory = places.directory_of(tenant, public_id)
        if directory.exists():
            kept += 1
            continue
        draft = directory.with_name(f".restoring-{public_id}")
        if draft.exists():
            shutil.rmtree(draft)
        tree = Tree(draft, owner=owners.of(tenant))
        try:
            directory.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            tree.create()
            with (folder / part.file).open("rb") as file:
                archive.seed(tree, file, _UNLIMITED)
            draft.rename(directory)
        except FileError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise BackupError(f"the workspace {public_id} of tenant {tenant} cannot be unpacked: {error}") from error
        progress.add(part.bytes)
        done += 1
    return done, kept


def missing(wanted: Sequence[Named]) -> int:
    """How many of these workspaces have no tree; those that were never used have none either."""
    return sum(not Tree(places.directory_of(*each)).exists() for each in wanted)


def _file_of(tenant: int, public_id: str) -> str:
    return f"workspaces/{tenant}/{public_id}.tar"
