"""The part of ops/test that works inside pytest: which tests a run takes, and what it counted."""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

from ops.suite_report import SLOWEST

ROOT = Path(__file__).resolve().parent.parent
# The core and the faces promise the same on Postgres and on SQLite.
BOTH_DATABASES = ("tests/core/", "tests/faces/")
# What these do depends on the database more than on anything else.
ABOUT_THE_DATABASE = ("tests/core/base/", "tests/core/log/", "tests/core/records/")
# These start servers and use the CPU; most of the others wait for something.
OF_PROCESSES = ("tests/faults/", "tests/e2e/", "tests/wiring/")
# One process runs all tests of these folders, because they share servers that each process would start for itself.
TOGETHER = ("tests/faults/", "tests/e2e/chat/", "tests/e2e/load/")
SHARED_SERVER = "the shared server"
LONGEST_FIRST = (TOGETHER[0], SHARED_SERVER, *TOGETHER[1:])
# The fixtures of tests/e2e/conftest.py that need its servers.
OF_SHARED_SERVER = frozenset({"server", "alice", "bob"})


def pytest_addoption(parser: pytest.Parser) -> None:
    # The first hook there is: the settings, which read the environment, are loaded by a later one.
    own_redis_database()
    group = parser.getgroup("ops/test")
    group.addoption("--only-both-databases", action="store_true", help="leave out tests that are about Postgres and Redis")
    group.addoption("--one-of-each", action="store_true", help="of tests that differ little, run the first")
    group.addoption("--tally", type=Path, help="write the numbers of tests by outcome, and the slowest, to this file")


def own_redis_database() -> None:
    """Processes that run tests side by side have a Postgres database each, with the same ids: they must not hear each other."""
    process, url = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("REDIS_URL", "")
    if process and url.startswith("redis"):
        parts = urlsplit(url)
        number = int(parts.path.strip("/") or 0) + int(process.removeprefix("gw"))
        os.environ["REDIS_URL"] = parts._replace(path=f"/{number % 16}").geturl()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--only-both-databases"):
        keep(items, [item for item in items if file_of(item).startswith(BOTH_DATABASES)])
    if config.getoption("--one-of-each"):
        keep(items, first_cases(items))
    if "PYTEST_XDIST_WORKER" in os.environ:
        sort(items)


def sort(items: list[pytest.Item]) -> None:
    """By files; but the tests of the shared server by its shapes first, because each change of the shape starts one anew."""
    order = mixed(list(dict.fromkeys(map(file_of, items))))
    shared = min((place for file, place in order.items() if unit_of(file) == SHARED_SERVER), default=0.0)

    def place(item: pytest.Item) -> tuple[float, str, float]:
        file = file_of(item)
        if unit_of(file) != SHARED_SERVER:
            return order[file], "", order[file]
        callspec = getattr(item, "callspec", None)
        return shared, str(callspec.params.get("server", "")) if callspec else "", order[file]

    items.sort(key=place)


def keep(items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Leave the others out of the run."""
    chosen = set(kept)
    if left_out := [item for item in items if item not in chosen]:
        left_out[0].config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def first_cases(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of a module whose subject is the database the first case of each test; of other modules the first test."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        file = file_of(item)
        first.setdefault(item.nodeid.partition("[")[0] if file.startswith(ABOUT_THE_DATABASE) else file, item)
    return list(first.values())


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath).as_posix()


@cache
def shares_server(file: str) -> bool:
    """Whether the tests of a file in tests/e2e use the servers of its conftest.py, which each process starts for itself."""
    try:
        tree = ast.parse((ROOT / file).read_text())
    except OSError:
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    fixtures = {each.name for each in functions if any("fixture" in ast.unparse(mark) for mark in each.decorator_list)}
    callers = [each for each in functions if each.name.startswith("test_") or each.name in fixtures]
    used = {argument.arg for each in callers for argument in each.args.args}
    return bool(used & OF_SHARED_SERVER - fixtures)


def unit_of(file: str) -> str:
    """What one process runs as a whole: the file, or the files with which it shares servers."""
    if file.startswith("tests/e2e/test_") and shares_server(file):
        return SHARED_SERVER
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def mixed(files: list[str]) -> dict[str, float]:
    """The order of the files. First those that a process runs as a whole, which take long. Of the others, those that start
    processes are spread evenly among the rest, so that both cores are always busy."""
    as_wholes = sorted((file for file in files if unit_of(file) != file), key=lambda file: LONGEST_FIRST.index(unit_of(file)))
    of_processes = [file for folder in OF_PROCESSES for file in files if file.startswith(folder) and file not in as_wholes]
    others = [file for file in files if not file.startswith(OF_PROCESSES)]
    order = {file: place / len(group) for group in (of_processes, others) for place, file in enumerate(group)}
    return {**order, **{file: place - len(files) for place, file in enumerate(as_wholes)}}


class Schedule(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """One file at a time for each process, in the order of collection; some files count as one."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(str(super()._split_scope(nodeid)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return Schedule(config, log)


_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: Path | None = config.getoption("--tally")
    if path is not None:
        reports = terminalreporter.stats
        counts = {kind: len(reports.get(kind, ())) for kind in ("passed", "failed", "error", "skipped", "xfailed")}
        slowest = sorted(((round(seconds, 2), test) for test, seconds in _seconds.items()), reverse=True)[:SLOWEST]
        path.write_text(json.dumps({"counts": counts, "slowest": slowest}))
