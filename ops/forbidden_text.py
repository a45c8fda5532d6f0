"""Text that must not be in the project: hosts of package registries, options that name an index, paths of one machine.

Each installation chooses its own index or mirror, so a host in the project would be wrong for some; and a path of the
machine on which a line was written is wrong on all others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Each pattern is written so that it does not match itself.
RULES = {
    "a registry host": re.compile(
        r"\b(?:[p]ypi\.org|[p]ythonhosted\.org|[n]pmjs\.(?:org|com)|[y]arnpkg\.com|deb\.[d]ebian\.org|[c]rates\.io|[d]ocker\.io|[g]hcr\.io)"
    ),
    "an option that names an index": re.compile(r"--(?:extra-)?[i]ndex-url|--[i]ndex\b|--[f]ind-links[ =](?!$)"),
    "a package's download address": re.compile(r"\"[r]esolved\": \"http"),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:[h]ome|[U]sers)/\w|(?<![\w./-])/(?:[r]oot|[w]ork)/[\w.]"),
}


def files() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in sorted(set(listed.stdout.decode().split("\0"))):
        path = ROOT / name
        if name and path.is_file():
            yield path


def faults(name: str, text: str) -> list[str]:
    # The path of this checkout too, unless it is "/" or a child of it, which is too short to mean anything.
    here = str(ROOT) + "/" if len(ROOT.parts) > 2 else None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"{name}:{number}: {what}: {match[0]}" for what, rule in RULES.items() if (match := rule.search(line))]
        if here is not None and here in line:
            found.append(f"{name}:{number}: the path of this checkout")
    return found


def main() -> int:
    found: list[str] = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += faults(path.relative_to(ROOT).as_posix(), text)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
