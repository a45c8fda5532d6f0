"""Makes a release: checks what must agree, builds both archives twice, and tries the wheel. Uploads nothing."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from ops import release_files, release_rules, release_trial
from ops.release_rules import ROOT, version

RECORD = ROOT / "sessions_app" / "migrations" / "released.txt"
_HEAD = "# The migrations that the last release shipped, one app.name a line. Written by `ops/release --record`.\n"


def say(text: str) -> None:
    print(f"ops/release: {text}", flush=True)


def record() -> int:
    """Note the migrations of this release: those of the next one must leave it running (ops/migration_rules.py)."""
    names = sorted(each.stem for each in RECORD.parent.glob("[0-9]*.py"))
    RECORD.write_text(_HEAD + "".join(f"sessions_app.{name}\n" for name in names))
    say(f"{RECORD.relative_to(ROOT)} lists {len(names)} migrations. Commit it, and open the next section of CHANGELOG.md.")
    return 0


def release(output: Path, *, draft: bool, offline: bool) -> int:
    faults = release_rules.all_faults()
    for fault in faults:
        say(f"{'note' if draft else 'error'}: {fault}")
    if faults and not draft:
        return 1
    if not list(ROOT.glob("LICENSE*")):
        say("warning: there is no LICENSE file. Without one nobody may copy or change this release; the owner decides.")
    made = release_files.build(output)
    with tempfile.TemporaryDirectory(prefix="agenthost-release-") as scratch:
        again = release_files.build(Path(scratch) / "again")
        differing = [one.name for one, other in zip(made, again, strict=True) if one.read_bytes() != other.read_bytes()]
        faults = [f"{name} differs when it is built again" for name in differing]
        faults += release_files.content_faults(made[0])
        for fault in faults:
            say(f"error: {fault}")
        if faults:
            return 1
        try:
            installed = release_trial.install(made[0], Path(scratch) / "trial", offline=offline)
            release_trial.first_steps(installed, version())
        except release_trial.TrialFailed as failed:
            say(f"error: {failed}")
            return 1
    say("the wheel was installed in a new environment, started and used")
    shown = Path(os.path.relpath(output))
    for path in made:
        say(f"{release_files.sha256(path)}  {shown / path.name}")
    say("nothing was uploaded or tagged; docs/releases.md has the next steps")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="ops/release", description="Makes the archives of a release. Uploads nothing.")
    parser.add_argument("--draft", action="store_true", help="of the tree as it is; faults of version and tag are only noted")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where the archives go (default: dist)")
    parser.add_argument("--offline", action="store_true", help="try the wheel with the packages of .venv")
    parser.add_argument("--record", action="store_true", help="after a release: note its migrations")
    given = parser.parse_args()
    return record() if given.record else release(given.output, draft=given.draft, offline=given.offline)


if __name__ == "__main__":
    sys.exit(main())
