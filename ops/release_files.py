"""The wheel and the source archive, the same bytes for the same tree. Called by ops/release."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from ops.release_rules import ROOT, git, version

PACKAGES = ("agenthost", "agents_app", "sessions_app")
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def epoch() -> int:
    """The time that all files get: that of the commit, or SOURCE_DATE_EPOCH."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(given) if given.isdigit() else int(git("log", "-1", "--format=%ct"))


def files() -> list[str]:
    """The files of the tree, without those that git ignores."""
    found = git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    return sorted(each for each in found if each and (ROOT / each).is_file())


def build(output: Path) -> tuple[Path, Path]:
    """Write the wheel and the source archive into a directory."""
    output.mkdir(parents=True, exist_ok=True)
    names = files()
    with tempfile.TemporaryDirectory(prefix="agenthost-release-") as scratch:
        tree = Path(scratch) / "tree"
        for name in names:
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
            # Whatever the umask was at the checkout.
            target.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
        built = subprocess.run(
            [sys.executable, "-c", _BUILD, str(output.absolute())],
            cwd=tree,
            # The wheel has the modes of files that the build writes.
            umask=0o022,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch()), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            raise SystemExit(f"ops/release: the wheel was not built:\n{built.stdout[-2000:]}{built.stderr[-4000:]}")
    wheel = output / built.stdout.split()[-1]
    return wheel, _source_archive(output, wheel, names)


def _source_archive(output: Path, wheel: Path, names: Sequence[str]) -> Path:
    """The whole tree. Written here, because setuptools' archives have the times and owners of the build's files."""
    top = f"agenthost-{version()}"
    archive = output / f"{top}.tar.gz"
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(f"{top}.dist-info/METADATA")
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            _add(tar, f"{top}/{name}", (ROOT / name).read_bytes(), is_program=os.access(ROOT / name, os.X_OK))
        _add(tar, f"{top}/PKG-INFO", metadata, is_program=False)
    return archive


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, is_program: bool) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(content), epoch(), 0o755 if is_program else 0o644
    tar.addfile(entry, BytesIO(content))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def content_faults(wheel: Path) -> Iterator[str]:
    """Everything in the packages' directories belongs into the wheel, and nothing else."""
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if name.split("/")[0] in PACKAGES}
    expected = {name for name in files() if name.split("/")[0] in PACKAGES}
    yield from (f"the wheel lacks {name} (tool.setuptools.package-data)" for name in sorted(expected - inside))
    yield from (f"the wheel has {name}, which is not in the tree" for name in sorted(inside - expected))
