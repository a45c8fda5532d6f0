"""``agenthost example``: prints or writes the example configurations that come with the server."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents_app import installation

FILES = {
    "alerts": "ops/prometheus/alerts.yml",
    "caddy": "ops/caddy/Caddyfile",
    "grafana": "ops/grafana/agenthost.json",
    "nginx": "ops/nginx/agenthost.conf",
    "prometheus": "ops/prometheus/prometheus.yml",
    "seccomp": "ops/seccomp-terminals.json",
}
"""Of the checkout. A package has them in its environment's share/agenthost (tool.setuptools.data-files)."""

FOLDERS = {"kubernetes": "ops/kubernetes", "systemd": "ops/systemd"}
"""Examples of several files, also of the checkout and in share/agenthost."""
_FOR_CHECKS = "other_kinds.json"
_PROGRAMS = ("/opt/agenthost/ops/entrypoint", "/opt/agenthost/bin/agenthost")
"""What units start: of a checkout in /opt/agenthost, and of a package in a virtual environment there."""


def path(name: str) -> Path:
    if installation.IS_CHECKOUT:
        return installation.ROOT / FILES[name]
    ending = FILES[name].removeprefix("ops/")
    found = _shared(ending)
    if ending not in found:
        raise FileNotFoundError(ending)
    return found[ending]


def files(name: str) -> dict[str, Path]:
    """The files of a folder, by their names in it."""
    if installation.IS_CHECKOUT:
        top = installation.ROOT / FOLDERS[name]
        found = {each.relative_to(top).as_posix(): each for each in top.rglob("*") if each.is_file()}
    else:
        start = FOLDERS[name].removeprefix("ops/") + "/"
        found = {ending.removeprefix(start): each for ending, each in _shared(start).items()}
        if not found:
            raise FileNotFoundError(start)
    return {ending: found[ending] for ending in sorted(found) if ending != _FOR_CHECKS}


def _shared(start: str) -> Mapping[str, Path]:
    """The package's files in share/agenthost whose names begin so."""
    found = {}
    for each in importlib.metadata.files(installation.DISTRIBUTION) or []:
        _, shared, ending = each.as_posix().partition(f"share/{installation.DISTRIBUTION}/")
        if shared and ending.startswith(start):
            found[ending] = Path(str(each.locate()))
    return found


def write(name: str, directory: Path) -> list[Path]:
    """Write a folder's files into a directory, which must have none of them yet; return them."""
    sources = {directory / ending: source for ending, source in files(name).items()}
    if there := [target for target in sources if target.exists()]:
        raise FileExistsError(f"{there[0]} exists; nothing was written. Name another directory, or move it away.")
    for target, source in sources.items():
        text = source.read_text()
        if not installation.IS_CHECKOUT:
            text = text.replace(*_PROGRAMS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return list(sources)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="agenthost example", description="Prints or writes an example configuration.")
    parser.add_argument(
        "name",
        choices=sorted({*FILES, *FOLDERS}),
        help="which one; docs/operating.md, docs/metrics.md and docs/production.md explain them",
    )
    parser.add_argument("--to", metavar="DIRECTORY", type=Path, help="where to write the files of kubernetes and systemd")
    given = parser.parse_args(arguments)
    if given.name in FILES:
        if given.to is not None:
            parser.error(f"{given.name} is one file, which is printed: leave --to out")
        print(path(given.name).read_text(), end="")  # noqa: T201 - the output
        return 0
    if given.to is None:
        parser.error(f"{given.name} has {len(files(given.name))} files: name a directory for them with --to")
    try:
        written = write(given.name, given.to)
    except OSError as error:
        parser.error(str(error))
    print(*written, sep="\n")  # noqa: T201 - the output
    return 0
