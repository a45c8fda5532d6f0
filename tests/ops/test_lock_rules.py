"""Locks that do not fit pyproject.toml."""

from __future__ import annotations

import pytest

from ops import environment, lock_rules
from tests.ops.test_environment import LOCK

PINS = environment.read_lock(LOCK)
WANTED = {
    "server": ["django>=5.2,<5.3"],
    "bedrock": ["botocore>=1.42"],
    "pydantic-ai": [],
    "dev": ["pytest>=9; sys_platform != 'win32'"],
}


def test_the_lock_of_the_project_fits() -> None:
    assert lock_rules.main() == 0


def test_a_lock_that_fits_has_no_fault() -> None:
    assert lock_rules.faults(PINS, WANTED) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("server", "django>=6"),
        ("server", "flask"),
        # It is in the lock, for an extra: the default installation would lack it.
        ("server", "botocore"),
        ("bedrock", "pytest"),
        ("dev", "mypy"),
    ],
)
def test_a_requirement_that_its_installation_would_lack_is_named(name: str, wanted: str) -> None:
    (fault,) = lock_rules.faults(PINS, {**WANTED, name: [wanted]})
    assert wanted in fault
    assert f"for {name}" in fault


def test_an_extra_that_is_gone_from_the_project_is_named() -> None:
    (fault,) = lock_rules.faults(PINS, {name: lines for name, lines in WANTED.items() if name != "pydantic-ai"})
    assert "pydantic-ai" in fault


def test_a_marker_that_bootstrap_cannot_evaluate_is_named() -> None:
    (fault,) = lock_rules.marker_faults(environment.read_lock(LOCK.replace("sys_platform != 'win32'", "'a' in sys_platform")))
    assert fault.startswith("pytest: ")


def test_a_default_installation_that_has_grown_is_named_with_what_brings_each_package() -> None:
    assert lock_rules.size_faults(PINS, most=2) == []
    (fault,) = lock_rules.size_faults(PINS, most=1)
    assert "django (via pyproject.toml)" in fault
    assert "botocore" not in fault


def test_the_extra_all_has_every_other_one() -> None:
    declared = {"all": ["agenthost[bedrock]"], "bedrock": [], "vertex": []}
    (fault,) = lock_rules.all_extra_faults({"project": {"optional-dependencies": declared}})
    assert fault == "pyproject.toml: the extra all lacks vertex"
