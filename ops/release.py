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
PREVIOUS = RECORD.with_name("previous_release.txt")
_MIGRATIONS = """\
# The migrations of the previous release, one app.name a line. It is named in previous_release.txt. Its processes run on the
# schema of this release; those of older ones do not. `ops/release --record` replaces both.
"""
_TAG = """\
# The tag of the previous release, whose migrations are those in released.txt. Its processes run beside those of this
# release during an upgrade. `ops/release --record` puts it here.
"""


def say(text: str) -> None:
    print(f"ops/release: {text}", flush=True)


def record() -> int:
    """Note this release and its migrations: those of the next one must leave it running (docs/howto/migration.md)."""
    tag = f"v{version()}"
    if tag not in release_rules.tags():
        say(f"error: there is no tag {tag}: the next release's migrations are checked against it. Tag the release first.")
        return 1
    names = sorted(each.stem for each in RECORD.parent.glob("[0-9]*.py"))
    PREVIOUS.write_text(f"{_TAG}{tag}\n")
    RECORD.write_text(_MIGRATIONS + "".join(f"sessions_app.{name}\n" for name in names))
    say(f"{RECORD.name} lists {len(names)} migrations, {PREVIOUS.name} names {tag}. Commit both, and begin the next version.")
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
