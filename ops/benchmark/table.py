"""The table of a run, as Markdown, with the machine it was made on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from ops.benchmark.figures import Pair, Result


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
    floor = "–" if result.floor is None else _number(result, result.floor)
    ratio = "–" if result.ratio is None else f"{result.ratio:.2f}"
    goal = result.goal or "–"
    return (
        f"| {figure.label} | {figure.unit} | {floor} | {_with_spread(result)} | {ratio} | {goal} | {_VERDICT[result.reached]} |"
    )


def pair_heading() -> list[str]:
    return [
        "| | unit | floor | other (lowest–highest) | ours (lowest–highest) | ours : other (lowest–highest) | must be | |",
        "|---|---|---|---|---|---|---|---|",
    ]


def pair_rows(pairs: Sequence[Pair]) -> list[str]:
    return [_pair_row(pair) for pair in pairs]


def _pair_row(pair: Pair) -> str:
    figure, floor = pair.ours.figures[0], pair.ours.floor
    ratio = "–"
    if pair.ratios:
        ratio = f"{median(pair.ratios):.2f}"
        if len(pair.ratios) > 1:
            ratio += f" ({min(pair.ratios):.2f}–{max(pair.ratios):.2f})"
    cells = (
        figure.label,
        figure.unit,
        "–" if floor is None else _number(pair.ours, floor),
        _with_spread(pair.other),
        _with_spread(pair.ours),
        ratio,
        pair.goal or "–",
        _VERDICT[pair.reached],
    )
    return f"| {' | '.join(cells)} |"


_VERDICT = {True: "yes", False: "**no**", None: ""}


def _number(result: Result, value: float) -> str:
    return f"{value:,.{result.figures[0].decimals}f}"


def _with_spread(result: Result) -> str:
    low, high = result.spread
    spread = f" ({_number(result, low)}–{_number(result, high)})" if len(result.figures) > 1 else ""
    return _number(result, result.ours) + spread
