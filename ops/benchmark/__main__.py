"""`ops/bench`: starts an installation, measures each row, prints the table."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import ExitStack
from types import FrameType
from typing import NoReturn

import uvloop

from ops import services
from ops.benchmark import measure, table
from ops.benchmark.installation import InstallationError, installed, model_server
from ops.benchmark.load import LoadError
from ops.benchmark.rows import FULL, QUICK, ROWS, Bench, Row, models, warm_up


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
    parsed = parser.parse_args()
    parsed.runs = parsed.runs or (1 if parsed.quick else 5)
    if min(parsed.runs, parsed.webs, parsed.workers) < 1:
        parser.error("--runs, --webs and --workers must be at least 1")
    return parsed


async def measured(bench: Bench, row: Row, runs: int) -> list[measure.Result]:
    found = []
    for number in range(runs):
        say(f"{row.name}, run {number + 1} of {runs}")
        found.append(await row.measure(bench))
    return measure.collect(found)


async def all_measured(bench: Bench, rows: list[Row], runs: int) -> None:
    await warm_up(bench)
    for line in table.heading():
        print(line, flush=True)
    for row in rows:
        for line in table.rows(await measured(bench, row, runs)):
            print(line, flush=True)


def main() -> int:
    parsed = arguments()
    if not measure.available():
        say("this system has no /proc, which the figures of processes are read from.")
        return 1
    size = QUICK if parsed.quick else FULL
    rows = [row for row in ROWS if parsed.only is None or row.name in parsed.only]
    if table.busy():
        say("this machine is busy: the figures mean little")
    print(f"{table.machine()}; {parsed.webs} web, {parsed.workers} worker; median of {parsed.runs}\n", flush=True)
    with ExitStack() as stack:
        home = stack.enter_context(services.folder())
        try:
            port = stack.enter_context(model_server())
            postgres = services.Postgres(home, crash_safe=True)
            running = installed(home, port, models(size), webs=parsed.webs, workers=parsed.workers, postgres=postgres)
            bench = Bench(size, home, stack.enter_context(running), port, stack, say)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(all_measured(bench, rows, parsed.runs))
        except (InstallationError, LoadError, services.ServiceMissingError) as error:
            say(f"{error}.")
            return 1
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
