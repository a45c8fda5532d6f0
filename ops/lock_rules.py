"""Whether the locks answer pyproject.toml: every requirement is locked, fits, and has hashes.

Without the network: it cannot tell that a newer version exists, only that `ops/lock` was not run after a change.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\]*)? \\$")


def locked(text: str) -> dict[str, set[Version]]:
    """Name to versions (several where they differ by platform); raises ValueError for a line that is no pinned requirement."""
    found: dict[str, set[Version]] = {}
    hashes, current = 0, ""
    for line in [*text.splitlines(), "end==0 \\"]:
        if line.startswith("    --hash=sha256:"):
            hashes += 1
            continue
        match = PINNED.match(line)
        if match is None:
            raise ValueError(f"not a pinned requirement: {line.strip()[:80]}")
        if current and not hashes:
            raise ValueError(f"{current} has no hash")
        current, hashes = match[1], 0
        found.setdefault(canonicalize_name(match[1]), set()).add(Version(match[2]))
    del found["end"]
    return found


def faults(name: str, text: str, requirements: list[str]) -> list[str]:
    try:
        pins = locked(text)
    except ValueError as error:
        return [f"{name}: {error}"]
    return [
        f"{name}: {wanted} is not locked to a version that fits; run ops/lock"
        for wanted in map(Requirement, requirements)
        if not any(wanted.specifier.contains(version) for version in pins.get(canonicalize_name(wanted.name), set()))
    ]


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime: list[str] = project["project"]["dependencies"]
    dev: list[str] = [*runtime, *project["dependency-groups"]["dev"]]
    texts = {name: (ROOT / name).read_text() for name in ("requirements.lock", "requirements-dev.lock")}
    found = faults("requirements.lock", texts["requirements.lock"], runtime)
    found += faults("requirements-dev.lock", texts["requirements-dev.lock"], dev)
    if not found:
        # ops/bootstrap takes an environment with the dev lock for one with the runtime lock.
        pins, dev_pins = (locked(text) for text in texts.values())
        found = [f"{name}: the two locks differ" for name in pins if pins[name] != dev_pins.get(name)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
