"""Locks that do not answer pyproject.toml."""

from __future__ import annotations

import pytest

from ops import lock_rules

LOCK = """\
django==5.2.19 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
uvloop==0.23.0 ; sys_platform != 'win32' \\
    --hash=sha256:cc
"""


def test_a_lock_that_fits_has_no_fault() -> None:
    assert lock_rules.faults("lock", LOCK, ["django>=5.2,<5.3", "uvloop>=0.22; sys_platform != 'win32'"]) == []


@pytest.mark.parametrize("wanted", ["django>=6", "flask"])
def test_a_requirement_that_is_not_locked_to_a_fitting_version_is_named(wanted: str) -> None:
    (fault,) = lock_rules.faults("lock", LOCK, [wanted])
    assert wanted in fault


@pytest.mark.parametrize(
    "text",
    ["django==5.2.19\n", "django==5.2.19 \\\nuvloop==0.23.0 \\\n    --hash=sha256:cc\n", "django>=5 \\\n    --hash=sha256:aa\n"],
    ids=["no hash", "no hash before the next", "not pinned"],
)
def test_a_package_without_a_hash_or_a_version_is_refused(text: str) -> None:
    assert len(lock_rules.faults("lock", text, [])) == 1
