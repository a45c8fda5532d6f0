"""Reads the units of ops/systemd as systemd does: drop-ins, lists, resets and the specifiers that they use."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tests.paths import ROOT

FOLDER = ROOT / "ops" / "systemd"
SERVICES = (
    "agenthost-migrate.service",
    "agenthost-web@8000.service",
    "agenthost-worker@1.service",
    "agenthost-terminals.service",
)
COMMON = FOLDER / "agenthost-.service.d" / "common.conf"


@dataclass
class Unit:
    name: str
    values: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def all(self, key: str, section: str = "Service") -> list[str]:
        return self.values.get((section, key), [])

    def one(self, key: str, section: str = "Service") -> str:
        return self.all(key, section)[-1]

    @property
    def credentials(self) -> dict[str, str]:
        """Name to the file that it is read from."""
        return dict(each.split(":", 1) for each in self.all("LoadCredential"))

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for line in self.all("Environment") for pair in shlex.split(line))

    @property
    def command(self) -> list[str]:
        return shlex.split(self.one("ExecStart"))


def read(name: str) -> Unit:
    """The service ``name``; of a template an instance, as agenthost-web@8000.service."""
    prefix, at, rest = name.partition("@")
    instance = rest.partition(".")[0]
    unit = Unit(name)
    for path in (FOLDER / f"{prefix}@.service" if at else FOLDER / name, COMMON):
        _add(path, unit, {"%i": instance, "%d": f"/run/credentials/{name}", "%S": "/var/lib"})
    return unit


def _add(path: Path, unit: Unit, specifiers: dict[str, str]) -> None:
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            for specifier, meant in specifiers.items():
                value = value.replace(specifier, meant)
            place = unit.values.setdefault((section, key), [])
            if value or key in ("CapabilityBoundingSet", "AmbientCapabilities"):
                place.append(value)
            else:
                place.clear()
