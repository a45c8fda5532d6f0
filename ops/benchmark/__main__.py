"""`ops/bench`: starts an installation, measures each row, prints the table."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

import uvloop

from ops import services
from ops.benchmark import processes, profile, table
from ops.benchmark.figures import Figure, collect, pairs
from ops.benchmark.installation import ROOT, InstallationError, Shape, installed, model_server
from ops.benchmark.load import LoadError
from ops.benchmark.results import Results
from ops.benchmark.rows import ROWS
from ops.benchmark.setting import FULL, QUICK, Bench, Row, models, warm_up


def say(text: str) -> None:
    print(f"ops/bench: {text}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {row.name:12}  {row.what}" for row in ROWS)
    parser = argparse.ArgumentParser(
        prog="ops/bench",
        description="Compares the server in its production shape with the same load sent directly to a scripted model server.",
        epilog=f"rows:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, metavar="N", help="number of runs whose median is shown (default: 5, with --quick 1)")
    parser.add_argument(
        "--only", action="append", choices=[row.name for row in ROWS], metavar="ROW", help="this row; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="small loads, to check that it works; the figures mean little")
    parser.add_argument("--webs", type=int, default=1, metavar="N", help="web processes (default: 1)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument(
        "--beside",
        type=checkout,
        metavar="PATH",
        help="measure this other checkout's server too, in alternation, and print ratios",
    )
    parser.add_argument("--profile", action="store_true", help="print what a turn of one token costs by process and thread")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every run to this file")
    parsed = parser.parse_args()
    parsed.runs = parsed.runs or (1 if parsed.quick else 5)
    if min(parsed.runs, parsed.webs, parsed.workers) < 1:
        parser.error("--runs, --webs and --workers must be at least 1")
    return parsed


def checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "ops" / "entrypoint").exists():
        raise argparse.ArgumentTypeError(f"{text} is not a checkout: it has no ops/entrypoint")
    return path


class Session:
    """The servers under measurement, the first of them this checkout's, and what was found."""

    def __init__(self, benches: Sequence[Bench], results: Results) -> None:
        self._benches, self._results = benches, results

    async def profile(self) -> None:
        for bench in self._benches:
            if bench.root != ROOT:
                print("\n# The other checkout", flush=True)
            await warm_up(bench)
            await profile.print_profile(bench)

    async def measure(self, rows: Sequence[Row], runs: int) -> None:
        for bench in self._benches:
            await warm_up(bench)
        print("\n".join(table.heading() if len(self._benches) == 1 else table.pair_heading()), flush=True)
        for row in rows:
            found = await self._row(row, runs)
            lines = table.rows(collect(found[0])) if len(found) == 1 else table.pair_rows(pairs(*found))
            if lines:
                print("\n".join(lines), flush=True)
            self._results.add(row.name, found)

    async def _row(self, row: Row, runs: int) -> list[list[list[Figure]]]:
        """The figures of each run, by server. The servers take turns, and every second run in the reverse order."""
        found: list[list[list[Figure]]] = [[] for _ in self._benches]
        for run in range(runs):
            order = list(enumerate(self._benches))
            for number, bench in reversed(order) if run % 2 else order:
                other = " of the other checkout" if number else ""
                say(f"{row.name}{other}, run {run + 1} of {runs}")
                found[number].append(await row.measure(bench))
        return found


def main() -> int:
    parsed = arguments()
    if not processes.available():
        say("this system has no /proc, which the figures of processes are read from.")
        return 1
    size = QUICK if parsed.quick else FULL
    rows = [row for row in ROWS if parsed.only is None or row.name in parsed.only]
    if table.busy():
        say("this machine is busy: the figures mean little")
    described = f"{table.machine()}; {parsed.webs} web, {parsed.workers} worker; median of {parsed.runs}"
    print(f"{described}\n", flush=True)
    roots = [ROOT] if parsed.beside is None else [ROOT, parsed.beside]
    results = Results(described, roots)
    with ExitStack() as stack:
        try:
            port = stack.enter_context(model_server())
            benches = []
            for root in roots:
                home = stack.enter_context(services.folder())
                shape = Shape(root, parsed.webs, parsed.workers, python_path=profile.NAMES if parsed.profile else None)
                running = installed(home, port, models(size), shape, services.Postgres(home, crash_safe=True))
                benches.append(Bench(size, home, stack.enter_context(running), port, stack, say, root))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                session = Session(benches, results)
                runner.run(session.profile() if parsed.profile else session.measure(rows, parsed.runs))
        except (InstallationError, LoadError, services.ServiceMissingError) as error:
            say(f"{error}.")
            return 1
        finally:
            if parsed.json is not None:
                parsed.json.write_text(json.dumps(results.as_json(), indent=1) + "\n")
    return 0


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # As Ctrl-C: the exit stack stops everything that was started.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
