"""Checks that requirements.lock fits pyproject.toml: every requirement is locked, for the right installations, with hashes.

It needs no network, so it cannot see that a newer version exists, only that `ops/lock` was not run after a change.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ops import environment
from ops.environment import ALL, DEV, DOCS, LOCK, ROOT, SERVER, Pin

MOST_PACKAGES = 79
"""The largest number of packages that the server alone may need, pip included, on each platform."""
_PIP = 1
# The newest Python and the oldest; a package that only another system needs does not count.
_PLATFORMS = tuple(
    {**environment.platform_values(python), "sys_platform": system, "platform_system": name, "os_name": "posix"}
    for python in ("3.11.0", "3.14.0")
    for system, name in (("linux", "Linux"), ("darwin", "Darwin"))
)


def requirements(project: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """The requirements of each package set: of the server, of each extra, of the groups dev and docs."""
    declared: Mapping[str, Sequence[str]] = project["project"]["optional-dependencies"]  # type: ignore[assignment]
    server: Sequence[str] = project["project"]["dependencies"]  # type: ignore[assignment]
    groups: Mapping[str, Sequence[str]] = project["dependency-groups"]  # type: ignore[assignment]
    return {
        SERVER: [*server],
        DEV: [*groups[DEV]],
        DOCS: [*groups[DOCS]],
        **{name: [*wanted] for name, wanted in declared.items() if name != ALL},
    }


def faults(pins: Sequence[Pin], wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """Requirements that an installation of their set would lack."""
    found = []
    for name, lines in wanted.items():
        there = environment.chosen(pins, {SERVER, name})
        for requirement in map(Requirement, lines):
            same_name = [pin for pin in there if canonicalize_name(pin.name) == canonicalize_name(requirement.name)]
            if not any(requirement.specifier.contains(pin.version) for pin in same_name):
                found.append(f"{requirement} is not locked for {name} in a version that fits; run ops/lock")
    unknown = {each for pin in pins for each in pin.sets} - wanted.keys()
    found += [f"{name} is no extra in pyproject.toml; run ops/lock" for name in sorted(unknown)]
    return found


def marker_faults(pins: Sequence[Pin]) -> list[str]:
    """Markers that ops/bootstrap cannot evaluate."""
    found = []
    for pin in pins:
        try:
            environment.applies(pin.marker, _PLATFORMS[0])
        except ValueError as error:
            found.append(f"{pin.name}: {error}")
    return found


def size_faults(pins: Sequence[Pin], most: int = MOST_PACKAGES) -> list[str]:
    """Whether the default installation has grown beyond its limit, and what it has."""
    for platform in _PLATFORMS:
        there = [pin for pin in environment.chosen(pins, {SERVER}) if environment.applies(pin.marker, platform)]
        if len(there) + _PIP > most:
            packages = ", ".join(f"{pin.name} (via {', '.join(pin.via)})" for pin in there)
            return [
                f"the default installation has {len(there)} packages and pip; the limit is {most}. Make the new ones an extra in "
                f"pyproject.toml, or move them to the dev group. It has: {packages}"
            ]
    return []


def all_extra_faults(project: Mapping[str, Mapping[str, object]]) -> list[str]:
    """The extra `all` is every other extra."""
    extras: Mapping[str, Sequence[str]] = project["project"]["optional-dependencies"]  # type: ignore[assignment]
    (line,) = extras[ALL]
    left = sorted(set(extras) - {ALL} - Requirement(line).extras)
    return [f"pyproject.toml: the extra {ALL} lacks {name}" for name in left]


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    try:
        pins = environment.read_lock(LOCK.read_text())
    except ValueError as error:
        found = [str(error)]
    else:
        found = [*faults(pins, requirements(project)), *marker_faults(pins)]
        found += [] if found else size_faults(pins)
    found = [f"{LOCK.name}: {fault}" for fault in found] + all_extra_faults(project)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
