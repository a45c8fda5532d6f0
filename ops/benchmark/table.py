"""The table of a run, as Markdown, with the machine it was made on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from ops.benchmark.measure import Result


def machine() -> str:
    """The machine and versions that the figures depend on, in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    parts = (
        f"{os.cpu_count()} x {_processor()}",
        f"{memory:.0f} GiB",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"Django {version('django')}",
        f"load {load:.1f} at the start",
    )
    return ", ".join(parts)


def busy() -> bool:
    return os.getloadavg()[0] > 0.5


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def heading() -> list[str]:
    return ["| | unit | floor | ours (lowest–highest) | ours : floor | must be | |", "|---|---|---|---|---|---|---|"]


def rows(results: Sequence[Result]) -> list[str]:
    return [_row(result) for result in results]


def _row(result: Result) -> str:
    figure = result.figures[0]
    low, high = result.spread

    def shown(value: float) -> str:
        return f"{value:,.{figure.decimals}f}"

    ours = shown(result.ours) + (f" ({shown(low)}–{shown(high)})" if len(result.figures) > 1 else "")
    floor = "–" if result.floor is None else shown(result.floor)
    ratio = "–" if result.ratio is None else f"{result.ratio:.2f}"
    aim = "–"
    if figure.at_most is not None:
        aim = f"<= {figure.at_most:,g}"
    elif figure.at_least is not None:
        aim = f">= {figure.at_least:,g}"
    verdict = {True: "yes", False: "**no**", None: ""}[result.reached]
    return f"| {figure.label} | {figure.unit} | {floor} | {ours} | {ratio} | {aim} | {verdict} |"
