"""export_usage: writes the use and cost of models as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, TextIO, cast

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.tenancy import model_use
from sessions_app.core.tenancy.model_use import GROUPINGS, Grouping, Line
from sessions_app.management.operator import OperatorCommand

_SUMS = ("calls", "input_tokens", "output_tokens", "cache_read_tokens", "cost", "unpriced_tokens")


class Command(OperatorCommand):
    help = (
        "Writes the use of models as CSV: calls, tokens and cost by day, tenant, session, key, agent, model and purpose."
        " Costs are in the unit of the agents file's prices at the time of use; tokens of models without a price are counted"
        " separately."
    )
    examples = """
export_usage > usage.csv
export_usage --tenant acme --from 2026-11-01 --to 2026-11-30 --by key,agent --output november.csv
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="TENANT", help="only this tenant (its slug)")
        parser.add_argument("--from", dest="first", metavar="DAY", type=_day, help="the first day, in UTC (2026-11-01)")
        parser.add_argument("--to", dest="last", metavar="DAY", type=_day, help="the last day, inclusive")
        parser.add_argument(
            "--by",
            metavar="GROUPS",
            default="day,tenant,session,key,agent,model,purpose",
            help=f"the columns to sum by, separated by commas: {', '.join(GROUPINGS)} (default: all of them)",
        )
        parser.add_argument("--output", metavar="FILE", help="the output file (default: standard output)")

    def handle(self, *_args: Any, **options: Any) -> None:
        by = _groups(options["by"])
        first, last = options["first"], options["last"]
        if first and last and first > last:
            raise CommandError(f"--from {first} is after --to {last}")
        tenant = self.tenant(options["tenant"]) if options["tenant"] else None
        lines = model_use.report(by, tenant=tenant, first=first, last=last)
        if options["output"] is None:
            written = _write(cast("TextIO", self.stdout), by, lines)
        else:
            written = self._to_file(Path(options["output"]), by, lines)
        self.explain(f"{written} lines" if written else "No model was used in this period.")

    def _to_file(self, path: Path, by: tuple[Grouping, ...], lines: Iterable[Line]) -> int:
        try:
            with path.open("w", encoding="utf-8", newline="") as file:
                return _write(file, by, lines)
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror}") from error


def _write(file: TextIO, by: tuple[Grouping, ...], lines: Iterable[Line]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*by, *_SUMS])
    written = 0
    for line in lines:
        cost = "" if line.cost is None else f"{line.cost:f}"
        writer.writerow(
            [*line.groups, line.calls, line.input_tokens, line.output_tokens, line.cache_read_tokens, cost, line.unpriced_tokens]
        )
        written += 1
    return written


def _day(text: str) -> date:
    # argparse adds the text and the option's name to the error.
    return date.fromisoformat(text)


def _groups(text: str) -> tuple[Grouping, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in GROUPINGS]
    if unknown or not names:
        raise CommandError(f"--by takes {', '.join(GROUPINGS)}; not {', '.join(unknown) or 'nothing'}")
    if len(set(names)) != len(names):
        raise CommandError("--by names a group twice")
    return cast("tuple[Grouping, ...]", names)
