"""Runs the tests: all on Postgres and Redis, and core and faces also on SQLite without Redis; or the fast part alone."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from ops import clean_environment, compiled_tests, kept_services, migrated_database, services
from ops.suite_report import Report

ROOT = Path(__file__).resolve().parent.parent
# Part of the test database's name.
SUFFIX = "AGENTHOST_TEST_DATABASE_SUFFIX"
# More examples for each test that generates its input.
THOROUGH = "AGENTHOST_TEST_THOROUGH"
# The transcripts of AAP are written, not compared.
RECORD = "AGENTHOST_TEST_RECORD"
# In this folder the processes of a run share the migrated installations that they copy.
SHARED = "AGENTHOST_TEST_SHARED"
NO_TESTS = 5
# These need no servers; `--fast` without arguments runs the pure tests and the core's.
WITHOUT_SERVERS = ("tests/pure", "tests/network", "tests/workspace")
FAST = ("tests/pure", "tests/core")
BOTH_DATABASES = ("tests/core", "tests/faces")


class Interrupted(Exception):
    """Somebody wants the tests to stop; servers are stopped first."""


def say(text: str) -> None:
    print(f"ops/test: {text}", file=sys.stderr, flush=True)


def environment(home: Path) -> dict[str, str]:
    inherited = clean_environment.inherited(SUFFIX, THOROUGH, RECORD)
    # Each of a few hundred processes would compile the server's modules, and each worker the tests.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**inherited, "AGENTHOST_VAR_DIR": str(home / "var"), "PYTHONUNBUFFERED": "1"}


def check_given(database_url: str) -> None:
    """The server that DATABASE_URL names answers, and lets us make a test database."""
    import psycopg

    if urlsplit(database_url).scheme not in ("postgres", "postgresql"):
        raise services.ServiceMissingError("DATABASE_URL: the tests need a Postgres; unset it and one is started")
    try:
        with psycopg.connect(database_url, connect_timeout=5) as connection:
            row = connection.execute("select rolcreatedb or rolsuper from pg_roles where rolname = current_user").fetchone()
    except psycopg.Error as error:
        raise services.ServiceMissingError(f"DATABASE_URL: {str(error).strip().splitlines()[0]}") from None
    if row is None or not row[0]:
        raise services.ServiceMissingError("DATABASE_URL: its user may not create databases, and the tests need their own")


def chosen(arguments: list[str], *, everything: bool) -> list[str]:
    """The arguments of pytest. The caller's own come last and override the others."""
    tier = [] if everything or any(argument.startswith("-m") for argument in arguments) else ["-m", "not slow"]
    return [*tier, "-p", "ops.pytest_runs", "--timeout=600", *arguments]


def in_parallel(arguments: list[str]) -> bool:
    """False if somebody runs a file, debugs, or says how many processes he wants."""
    named_files = any(Path(argument.partition("::")[0]).is_file() for argument in arguments)
    by_hand = any(argument in ("--pdb", "--trace", "-s") or argument.startswith(("-n", "--dist")) for argument in arguments)
    return not named_files and not by_hand


def parallel(arguments: list[str]) -> list[str]:
    """Two processes for pure tests, which compute; three otherwise, because many of the others wait for something."""
    if not in_parallel(arguments):
        return []
    only_pure = paths(arguments) and all(path.removeprefix("./").startswith("tests/pure") for path in paths(arguments))
    return ["-n", "2" if only_pure else "3", "--dist", "loadfile"]


def paths(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if (ROOT / argument.partition("::")[0]).exists()]


@dataclass
class Run:
    """A pytest process. With an ``output`` file it runs beside another one, and its output is shown when it has ended."""

    title: str
    process: subprocess.Popen[bytes]
    tally: Path
    output: Path | None
    began: float


class Runs:
    """The pytest processes, and what they counted together."""

    def __init__(self, home: Path, report: Report) -> None:
        self.report = report
        self.counts: Counter[str] = Counter()
        self.codes: list[int] = []
        self.interrupted = False
        self._home = home
        self._running: list[Run] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.interrupted = True
        if not self._running:
            raise Interrupted
        # Ctrl-C reaches pytest directly. It tears its tests down, and only then are the servers stopped.
        if number != signal.SIGINT:
            for run in self._running:
                run.process.send_signal(signal.SIGINT)

    def start(self, title: str, arguments: list[str], variables: dict[str, str], *, beside: bool = False) -> Run:
        name = f"run-{len(self.codes) + len(self._running)}"
        tally, output = self._home / f"{name}.json", self._home / f"{name}.txt" if beside else None
        command = [sys.executable, "-m", "pytest", *arguments, f"--tally={tally}"]
        with ExitStack() as stack:
            to = None if output is None else stack.enter_context(output.open("wb"))
            process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=to, stderr=to)
        run = Run(title, process, tally, output, time.monotonic())
        self._running.append(run)
        return run

    def finish(self, run: Run) -> int:
        say(run.title)
        code = run.process.wait()
        self._running.remove(run)
        if run.output is not None:
            print(run.output.read_text(errors="replace"), end="", flush=True)
        if run.tally.exists():
            tally = json.loads(run.tally.read_text())
            self.counts.update(tally["counts"])
            self.report.add_slowest(tally["slowest"], run.title)
            # One that ran beside another may have ended long ago.
            self.report.ended(run.title, run.began, ago=max(0.0, time.time() - run.tally.stat().st_mtime))
        self.codes.append(code)
        if self.interrupted and not self._running:
            raise Interrupted
        return code

    def run(self, title: str, arguments: list[str], variables: dict[str, str]) -> int:
        return self.finish(self.start(title, arguments, variables))

    def verdict(self) -> int:
        failed = self.counts["failed"] + self.counts["error"]
        skipped = self.counts["skipped"] + self.counts["xfailed"]
        print(f"{self.counts['passed']} passed, {failed} failed, {skipped} skipped", flush=True)
        # A second run that had nothing to do is fine; a first one is a mistyped argument.
        bad = [code for place, code in enumerate(self.codes) if code and not (code == NO_TESTS and place > 0)]
        return bad[0] if bad else (1 if failed else 0)


def run_all(runs: Runs, home: Path, arguments: list[str], stack: ExitStack, *, everything: bool) -> None:
    variables = environment(home)
    database_url, redis_url = os.environ.get("DATABASE_URL"), os.environ.get("REDIS_URL")
    with runs.report.phase("starting servers, compiling tests"), compiled_tests.made(variables):
        if not redis_url:
            redis = services.Redis(home)
            stack.callback(redis.stop)
            redis.start()
            redis_url = redis.url()
        if database_url:
            check_given(database_url)
        else:
            postgres = services.Postgres(home)
            stack.callback(postgres.stop)
            postgres.start()
            database_url = postgres.url()
            # The databases that they share are removed with this Postgres.
            variables[SHARED] = str(home / "shared")
            migrating = migrated_database.begin(database_url, {**variables, "REDIS_URL": redis_url})
            variables |= migrated_database.made(migrating)
    on_servers = {**variables, "DATABASE_URL": database_url, "REDIS_URL": redis_url}
    one_of_each = [] if everything or paths(arguments) else ["--one-of-each"]
    on_sqlite = [*(() if paths(arguments) else BOTH_DATABASES), *arguments, "--only-both-databases", *one_of_each]
    first_title, second_title = "all tests, on Postgres and Redis", "tests/core and tests/faces, on SQLite"
    if in_parallel(arguments):
        second = runs.start(second_title, on_sqlite, variables, beside=True)
        runs.run(first_title, [*parallel(arguments), *arguments], on_servers)
        runs.finish(second)
    elif runs.run(first_title, arguments, on_servers) != NO_TESTS:
        runs.run(second_title, on_sqlite, variables)


def run_fast(runs: Runs, home: Path, arguments: list[str], stack: ExitStack) -> None:
    """One run on servers that are kept for the next one, with a database that is made anew only when migrations changed."""
    (ROOT / "var").mkdir(mode=0o700, exist_ok=True)
    only_user = stack.enter_context((ROOT / "var" / "test-fast.lock").open("w"))
    try:
        fcntl.flock(only_user, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise services.ServiceMissingError(
            "another `ops/test --fast` is using the kept servers; wait, or run without --fast"
        ) from None
    database_url, redis_url = kept_services.obtain()
    kept = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, SUFFIX: schema_digest()}
    title = "on the kept Postgres and Redis (ops/test --stop ends them)"
    runs.run(title, [*parallel(arguments), "--reuse-db", *arguments], {**environment(home), **kept})


def needs_servers(arguments: list[str]) -> bool:
    """False if all the files and folders among ``arguments`` are of tests that use no database."""
    named = paths(arguments)
    return not named or not all(path.removeprefix("./").startswith(WITHOUT_SERVERS) for path in named)


def schema_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "sessions_app" / "migrations").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def main() -> int:
    arguments = sys.argv[1:]
    if "--stop" in arguments:
        say("the kept servers are stopped." if kept_services.stop() else "no servers are kept.")
        return 0
    everything, fast = "--all" in arguments, "--fast" in arguments
    arguments = [argument for argument in arguments if argument not in ("--all", "--fast")]
    if fast and not paths(arguments):
        arguments += FAST
    if everything:
        os.environ[THOROUGH] = "yes"
    arguments = chosen(arguments, everything=everything)
    report = Report()
    limited = not everything and not fast and not paths(arguments)
    with ExitStack() as stack:
        home = stack.enter_context(services.folder())
        runs = Runs(home, report)
        try:
            if not needs_servers(arguments):
                runs.run("without servers", [*parallel(arguments), *arguments], environment(home))
            elif fast:
                run_fast(runs, home, arguments, stack)
            else:
                run_all(runs, home, arguments, stack, everything=everything)
        except services.ServiceMissingError as error:
            say(f"{error}.")
            return 1
        except Interrupted:
            say("stopped.")
            return 130
    for line in report.lines(limited=limited):
        say(line)
    return runs.verdict()


if __name__ == "__main__":
    sys.exit(main())
