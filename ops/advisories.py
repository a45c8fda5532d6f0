"""Looks every locked package up in the published advisories (OSV).

Where they cannot be reached it says so and reports no fault: a build without a network is as good as its lock. An advisory
that does not concern this project is accepted for a time in pyproject.toml:

    [[tool.agenthost.accepted-advisories]]
    id = "CVE-2026-1234"
    until = 2027-01-31
    reason = "only the parser for XML, which nothing here calls"

`OPS_ADVISORIES` is the address of another service with OSV's API, for example a mirror inside a company.
"""

from __future__ import annotations

import datetime as dt
import http.client
import json
import os
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.environment import LOCK, ROOT, Pin, read_lock

SERVICE = "https://api.osv.dev"
SECONDS = 10.0
"""For each answer: a network that drops packets must not delay every ops/check."""
MOST_BYTES = 20_000_000
MOST_ADVISORIES = 200
NOTE = "note: "
"""ops/check shows the lines that begin so, also of a step that passed."""


class UnreachableError(Exception):
    """The advisories cannot be read."""


@dataclass(frozen=True)
class Advisory:
    package: str
    version: str
    names: frozenset[str]
    """Its id and the ids of the same advisory elsewhere."""
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        fixed = ", ".join(self.fixed) or "no version yet"
        return f"{self.package} {self.version}: {', '.join(sorted(self.names))}; fixed in {fixed}"


def published(pins: Sequence[Pin], service: str = SERVICE) -> list[Advisory]:
    """The advisories on these versions, those that were withdrawn left out."""
    asked = {"queries": [{"version": pin.version, "package": {"name": pin.name, "ecosystem": "PyPI"}} for pin in pins]}
    results = _answer(f"{service}/v1/querybatch", asked).get("results")
    if not isinstance(results, list) or len(results) != len(pins):
        raise UnreachableError("the answer is not that of OSV's API")
    found = [(pin, each["id"]) for pin, result in zip(pins, results, strict=True) for each in result.get("vulns") or ()]
    if len(found) > MOST_ADVISORIES:
        raise UnreachableError(f"{len(found)} advisories; at most {MOST_ADVISORIES} are looked at")
    return [advisory for pin, name in found if (advisory := _described(pin, name, service)) is not None]


def _described(pin: Pin, name: str, service: str) -> Advisory | None:
    described = _answer(f"{service}/v1/vulns/{name}", None)
    if described.get("withdrawn"):
        return None
    fixed = {
        event["fixed"]
        for affected in described.get("affected", ())
        if affected.get("package", {}).get("name", "").lower() == pin.name.lower()
        for span in affected.get("ranges", ())
        if span.get("type") != "GIT"
        for event in span.get("events", ())
        if "fixed" in event
    }
    return Advisory(pin.name, pin.version, frozenset({name, *described.get("aliases", ())}), tuple(sorted(fixed)))


def _answer(address: str, asked: object | None) -> dict[str, Any]:
    body = None if asked is None else json.dumps(asked).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json", "User-Agent": "agenthost-ops-check"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            read = response.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(str(error) or type(error).__name__) from None
    try:
        if len(read) > MOST_BYTES:
            raise ValueError
        answer = json.loads(read)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise UnreachableError("the answer is not that of OSV's API")
    return answer


def accepted(project: Mapping[str, Any], today: dt.date) -> tuple[frozenset[str], list[str]]:
    """Advisories that are accepted today, and faults of the list itself."""
    given, faults = set(), []
    for entry in project.get("tool", {}).get("agenthost", {}).get("accepted-advisories", []):
        name, until, reason = entry.get("id"), entry.get("until"), entry.get("reason")
        if not name or not reason or not isinstance(until, dt.date):
            faults.append(f"pyproject.toml: accepted-advisories: {name or 'an entry'} needs id, until (a date) and reason")
        elif until < today:
            faults.append(f"pyproject.toml: accepted-advisories: {name} was accepted until {until}; look at it again")
        else:
            given.add(name)
    return frozenset(given), faults


def lines(pins: Sequence[Pin], project: Mapping[str, Any], today: dt.date, service: str) -> Iterator[str]:
    """Faults, and a note on how much was looked up."""
    given, faults = accepted(project, today)
    yield from faults
    try:
        found = published(pins, service)
    except UnreachableError as error:
        yield f"{NOTE}not looked up: the advisories cannot be reached from here ({error})"
        return
    yield f"{NOTE}{len(pins)} packages looked up"
    yield from sorted({str(advisory) for advisory in found if not advisory.names & given})


def main() -> int:
    pins = read_lock(LOCK.read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    today = dt.datetime.now(dt.UTC).date()
    found = list(lines(pins, project, today, os.environ.get("OPS_ADVISORIES") or SERVICE))
    for line in found:
        print(line)
    if all(line.startswith(NOTE) for line in found):
        return 0
    print("Take a fixed version (pyproject.toml, ops/lock --upgrade), or accept the advisory for a time (ops/advisories.py).")
    return 1


if __name__ == "__main__":
    sys.exit(main())
