"""Writes requirements.lock: `python -m ops.lock_file UV [options of uv pip compile]`, called by ops/lock.

uv resolves everything at once (the server, all extras, the groups dev and docs), so that all installations have the same
versions. A second resolution for the server, each extra and each group, with those versions, shows which installation needs
which package. Both facts are written below each package: `# for bedrock`, by which ops/environment.py installs, and
`# via boto3` for readers.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.environment import ALL, DEV, DOCS, LOCK, ROOT, SERVER

_VIA = re.compile(r"^    # (?:via |  )([^\s(]+)", re.MULTILINE)
_START = re.compile(r"^([A-Za-z0-9._-]+==\S+)", re.MULTILINE)
_OURS = "agenthost"
# Hashes instead of an address: whichever index or mirror an installer is set up with, it must deliver these very files.
_OPTIONS = ("--universal", "--python-version=3.11", "--no-header", "--no-emit-index-url", "--no-emit-find-links")


def extras_of(project: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]) -> list[str]:
    return sorted(set(project["project"]["optional-dependencies"]) - {ALL})


def pinned(text: str) -> set[str]:
    """The packages of a compiled file, as name==version."""
    return set(_START.findall(text))


def with_sets(text: str, sets: Mapping[str, set[str]]) -> str:
    """The lock with two lines below each package: the sets that need it, and the packages that do (or pyproject.toml).

    What the server needs is in every installation, so its line names the server alone. The dev group has what any extra needs,
    so dev is named for packages of no extra only. A package of no set here is another platform's, and counts as dev.
    """
    lines: list[str] = []
    for block in filter(None, re.split(r"^(?=\S)", text, flags=re.MULTILINE)):
        (package,) = pinned(block)
        via = sorted({"pyproject.toml" if name == _OURS else name for name in _VIA.findall(block)} - {"via"})
        needed_by = [name for name, packages in sorted(sets.items()) if package in packages] or [DEV]
        if set(needed_by) - {DEV, DOCS}:
            needed_by = [name for name in needed_by if name != DEV]
        lines.append(re.sub(r"^    #.*\n", "", block, flags=re.MULTILINE))
        lines.append(f"    # for {SERVER if SERVER in needed_by else ', '.join(needed_by)}\n    # via {', '.join(via)}\n")
    return "".join(lines)


def compiled(uv: str, output: Path, *options: str) -> str:
    command = [uv, "pip", "compile", "pyproject.toml", *_OPTIONS, "--quiet", "--output-file", str(output), *options]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return output.read_text()


def main() -> int:
    uv, *options = sys.argv[1:]
    extras = extras_of(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    try:
        text = compiled(uv, LOCK, "--generate-hashes", "--all-extras", "--group=dev", "--group=docs", *options)
        with tempfile.TemporaryDirectory() as scratch:
            parts = {
                SERVER: [],
                DEV: ["--all-extras", "--group=dev"],
                DOCS: ["--group=docs"],
                **{extra: [f"--extra={extra}"] for extra in extras},
            }
            sets = {
                name: pinned(compiled(uv, Path(scratch) / name, f"--constraints={LOCK}", *arguments))
                for name, arguments in parts.items()
            }
    except subprocess.CalledProcessError:
        print("ops/lock: uv could not resolve pyproject.toml; see above", file=sys.stderr)
        return 1
    LOCK.write_text(with_sets(text, sets))
    print(f"ops/lock: wrote {LOCK.name}, {len(sets[SERVER])} packages for the server", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
