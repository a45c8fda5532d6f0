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
from urllib.parse import urlsplit

import uvloop

from ops import services
from ops.benchmark import against, processes, profile, table
from ops.benchmark.figures import Figure, collect, pairs
from ops.benchmark.installation import ROOT, InstallationError, Shape, installed, model_server
from ops.benchmark.load import Aap, Chat, LoadError
from ops.benchmark.results import Results
from ops.benchmark.rows import ROWS
from ops.benchmark.setting import FULL, QUICK, Bench, Row, Size, models, warm_up


def say(text: str) -> None:
    print(f"ops/bench: {text}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {row.name:15}  {row.what}" for row in ROWS)
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
    other = parser.add_argument_group(
        "another server",
        "Any server that speaks OpenAI's chat completions or AAP, with the rows that need nothing else. Either it passes the "
        "names of the scripted models on to the scripted model server (AAP: it has an agent for each), or --model names its own.",
    )
    other.add_argument("--against", metavar="URL", help="for example http://127.0.0.1:9000/v1 or https://host/aap/v3")
    other.add_argument("--model", metavar="NAME", help="its own model or agent to use: no floor then, and tokens are not checked")
    other.add_argument("--key-file", type=Path, metavar="FILE", help=f"its key (default: the variable {against.KEY_VARIABLE})")
    other.add_argument("--pids", type=numbers, default=[], metavar="PID[,PID]...", help="its processes here, for CPU and memory")
    other.add_argument(
        "--model-port", type=int, default=8900, metavar="N", help="the scripted model server's port (default: 8900)"
    )
    parsed = parser.parse_args()
    if parsed.against is not None and parsed.profile:
        parser.error("--profile needs a server of its own: leave --against out")
    if parsed.against is None and (parsed.model or parsed.key_file or parsed.pids):
        parser.error("--model, --key-file and --pids need --against")
    parsed.runs = parsed.runs or (1 if parsed.quick else 5)
    if min(parsed.runs, parsed.webs, parsed.workers) < 1:
        parser.error("--runs, --webs and --workers must be at least 1")
    return parsed


def checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "ops" / "entrypoint").exists():
        raise argparse.ArgumentTypeError(f"{text} is not a checkout: it has no ops/entrypoint")
    return path


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


class Session:
    """The servers under measurement and what was found. With two, the first one's figures are compared with the second's."""

    def __init__(self, benches: Sequence[Bench], results: Results) -> None:
        self._benches, self._results = benches, results
        # The goals are this server's, and for ratios to an earlier release of it.
        self._with_goals = not any(isinstance(bench.server, against.PeerServer) for bench in benches)

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
                other = " of the other server" if number else ""
                say(f"{row.name}{other}, run {run + 1} of {runs}")
                figures = await row.measure(bench)
                found[number].append(figures if self._with_goals else [figure.without_goals() for figure in figures])
        return found


def roots(parsed: argparse.Namespace) -> list[Path]:
    """The checkouts to start a server of."""
    if parsed.against is not None:
        return [] if parsed.beside is None else [parsed.beside]
    return [ROOT] if parsed.beside is None else [ROOT, parsed.beside]


def chosen(only: Sequence[str] | None, other: against.Peer | None) -> list[Row]:
    """The rows to measure. Raises AgainstError if one was asked for that another server does not allow."""
    asked = [row for row in ROWS if only is None or row.name in only]
    rows = asked if other is None else [row for row in asked if (Aap if other.is_aap else Chat) in row.anywhere]
    if only is not None and len(rows) < len(asked):
        missing = ", ".join(row.name for row in asked if row not in rows)
        raise against.AgainstError(f"rows that cannot be measured at another server: {missing}")
    return rows


def started(parsed: argparse.Namespace, size: Size, other: against.Peer | None, key: str, stack: ExitStack) -> list[Bench]:
    """All servers under measurement, ready. The exit stack stops what was started."""
    port = 0
    if parsed.model is None or parsed.beside is not None:
        port = stack.enter_context(model_server(0 if other is None else parsed.model_port))
    benches = []
    for root in roots(parsed):
        home = stack.enter_context(services.folder())
        shape = Shape(root, parsed.webs, parsed.workers, python_path=profile.NAMES if parsed.profile else None)
        running = installed(home, port, models(size), shape, services.Postgres(home, crash_safe=True))
        benches.append(Bench(size, home, stack.enter_context(running), port, stack, say, root))
    if other is not None:
        home = stack.enter_context(services.folder())
        server = against.PeerServer(other.target(key), parsed.pids)
        benches.append(Bench(size, home, server, port if parsed.model is None else 0, stack, say))
    return benches


def main() -> int:
    parsed = arguments()
    if not processes.available():
        say("this system has no /proc, which the figures of processes are read from.")
        return 1
    size = QUICK if parsed.quick else FULL
    try:
        other = None if parsed.against is None else against.peer(parsed.against, parsed.model)
        rows = chosen(parsed.only, other)
        key = "" if other is None else against.key(parsed.key_file)
    except against.AgainstError as error:
        say(f"{error}.")
        return 1
    if table.busy():
        say("this machine is busy: the figures mean little")
    described = f"{table.machine()}; {_shape(parsed)}; median of {parsed.runs}"
    print(f"{described}\n", flush=True)
    if other is not None and parsed.model is None:
        say(f"the scripted models are at http://127.0.0.1:{parsed.model_port}/v1 under these names: {', '.join(models(size))}")
    results = Results(described, roots(parsed))
    with ExitStack() as stack:
        try:
            session = Session(started(parsed, size, other, key, stack), results)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(session.profile() if parsed.profile else session.measure(rows, parsed.runs))
        except (InstallationError, LoadError, services.ServiceMissingError) as error:
            say(f"{error}.")
            return 1
        finally:
            if parsed.json is not None:
                parsed.json.write_text(json.dumps(results.as_json(), indent=1) + "\n")
    return 0


def _shape(parsed: argparse.Namespace) -> str:
    ours = f"{parsed.webs} web, {parsed.workers} worker"
    if parsed.against is None:
        return ours
    host = urlsplit(parsed.against).hostname
    model = "" if parsed.model is None else f", its model {parsed.model}"
    return f"the server at {host}{model}" + ("" if parsed.beside is None else f", compared with {ours}")


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
