"""The part of ops/test that works inside pytest: which tests a run takes, and what it counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

# The core and the faces promise the same on Postgres and on SQLite.
BOTH_DATABASES = ("tests/core/", "tests/faces/")


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--only-both-databases"):
        return
    left_out = [item for item in items if not on_both(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if on_both(item)]


def on_both(item: pytest.Item) -> bool:
    return item.path.relative_to(item.config.rootpath).as_posix().startswith(BOTH_DATABASES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: Path | None = config.getoption("--tally")
    if path is not None:
        reports = terminalreporter.stats
        counts = {kind: len(reports.get(kind, ())) for kind in ("passed", "failed", "error", "skipped", "xfailed")}
        path.write_text(json.dumps(counts))
