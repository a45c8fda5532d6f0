"""The part of ops/test that works inside pytest: which tests a run takes, and what it counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

# The core and the faces promise the same on Postgres and on SQLite.
BOTH_DATABASES = ("tests/core/", "tests/faces/")
# These start servers and use the CPU; most of the others wait for something.
OF_PROCESSES = ("tests/faults/", "tests/e2e/", "tests/wiring/")
# One process runs all tests of these folders, because a cluster for each process would take longer.
TOGETHER = ("tests/faults/",)


def pytest_addoption(parser: pytest.Parser) -> None:
    # The first hook there is: the settings, which read the environment, are loaded by a later one.
    own_redis_database()
    group = parser.getgroup("ops/test")
    group.addoption("--only-both-databases", action="store_true", help="leave out tests that are about Postgres and Redis")
    group.addoption("--tally", type=Path, help="write how many tests passed, failed and were skipped to this file")


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
        left_out = [item for item in items if not file_of(item).startswith(BOTH_DATABASES)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if file_of(item).startswith(BOTH_DATABASES)]
    if "PYTEST_XDIST_WORKER" in os.environ:
        order = mixed(list(dict.fromkeys(map(file_of, items))))
        items.sort(key=lambda item: order[file_of(item)])


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath).as_posix()


def mixed(files: list[str]) -> dict[str, float]:
    """The order of the files: those that start processes spread evenly among the others, so that both cores are always busy."""
    of_processes = [file for folder in OF_PROCESSES for file in files if file.startswith(folder)]
    others = [file for file in files if not file.startswith(OF_PROCESSES)]
    return {file: place / len(group) for group in (of_processes, others) for place, file in enumerate(group)}


class Schedule(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """One file at a time for each process, in the order of collection; some folders count as one file."""

    def _split_scope(self, nodeid: str) -> str:
        folder = next((folder for folder in TOGETHER if nodeid.startswith(folder)), None)
        return folder or super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return Schedule(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: Path | None = config.getoption("--tally")
    if path is not None:
        reports = terminalreporter.stats
        counts = {kind: len(reports.get(kind, ())) for kind in ("passed", "failed", "error", "skipped", "xfailed")}
        path.write_text(json.dumps(counts))
