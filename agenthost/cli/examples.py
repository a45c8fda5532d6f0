"""``agenthost example``: prints the example configurations that come with the server."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Sequence
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


def path(name: str) -> Path:
    if installation.IS_CHECKOUT:
        return installation.ROOT / FILES[name]
    ending = FILES[name].removeprefix("ops/")
    for each in importlib.metadata.files(installation.DISTRIBUTION) or []:
        if each.as_posix().endswith(f"share/{installation.DISTRIBUTION}/{ending}"):
            return Path(str(each.locate()))
    raise FileNotFoundError(ending)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="agenthost example", description="Prints an example configuration.")
    parser.add_argument("name", choices=sorted(FILES), help="which one; docs/operating.md and docs/metrics.md explain them")
    print(path(parser.parse_args(arguments).name).read_text(), end="")  # noqa: T201 - the output
    return 0
