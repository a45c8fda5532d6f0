"""Fixtures of all tests: real databases, no connections to other machines, the scripted model server."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import pytest_django
from django.db import connections

from ops import migrated_database
from tests.fakes.model_server import ModelServer

if TYPE_CHECKING:
    from ops.services import Redis
    from tests.sample_tenants import SampleTenants


def pytest_configure() -> None:
    # No time limits for examples, because they depend on the machine. `ops/test --all` tries more of them.
    hypothesis.settings.register_profile(
        "suite",
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        max_examples=200 if os.environ.get("AGENTHOST_TEST_THOROUGH") else 30,
    )
    hypothesis.settings.load_profile("suite")
    # One line for each request would hide the messages of a failed test.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _close_connections_of_threads()


def _close_connections_of_threads() -> None:
    """Give back the connections to the database that tests use in ``asyncio.to_thread``.

    Its threads end with the test's loop, and a connection that ends with its thread is missing in the pool for ever: after
    twenty such tests the others of the process get none.
    """
    to_thread = asyncio.to_thread

    async def closing(call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        def called() -> Any:
            try:
                return call(*arguments, **named)
            finally:
                connections.close_all()

        return await to_thread(called)

    asyncio.to_thread = closing


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nearly all that a collection of tests creates stays: garbage collections in between took a sixth of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    # Without this, each full garbage collection visits all collected tests, which takes 0.3 s.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    # Only if a test has started a server.
    if servers := sys.modules.get("tests.e2e.server"):
        servers.forget_templates()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where a module tests both kinds of server, its tests on the embedded one are slow unless marked ``embedded_too``. Of a test
    that is marked ``variants`` all cases but the first are slow."""
    both = {item.path for item in items if "production" in _shapes_of(item)}
    with_a_case = set[str]()
    for item in items:
        if item.path in both and "embedded" in _shapes_of(item) and item.get_closest_marker("embedded_too") is None:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("variants") is not None and item.get_closest_marker("slow") is None:
            test = item.nodeid.partition("[")[0]
            if test in with_a_case:
                item.add_marker(pytest.mark.slow)
            with_a_case.add(test)


def _shapes_of(item: pytest.Item) -> list[object]:
    callspec = getattr(item, "callspec", None)
    return [] if callspec is None else [value for value in callspec.params.values() if isinstance(value, str)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("sandbox") is not None:
        from sessions_app.workspace import sandbox

        if reason := sandbox.check():
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last words of the servers that it ran."""
    report = yield
    servers = sys.modules.get("tests.e2e.server")
    if report.failed and servers is not None:
        for server in servers.RUNNING:
            for log in sorted(server.directory.glob("*.log")):
                report.sections.append((f"end of {server.shape}'s {log.name}", log.read_text(errors="replace")[-2500:]))
    return report


_reported_threads: set[threading.Thread] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fails the test that leaves a worker behind, which would run the turns of later tests and carry their connections."""
    yield
    left = [thread for thread in threading.enumerate() if thread.name == "runs" and thread not in _reported_threads]
    for thread in left:
        thread.join(60)
    if left := [thread for thread in left if thread.is_alive()]:
        _reported_threads.update(left)
        frames = sys._current_frames()
        stacks = ["".join(traceback.format_stack(frames[thread.ident])) for thread in left if thread.ident in frames]
        pytest.fail("a worker still runs after this test:\n" + "\n".join(stacks))


# --- nothing leaves this machine (and so no test can reach a real model) ---


class _Border:
    """Watches every connection of this process; an audit hook cannot be taken away, only told to look."""

    def __init__(self) -> None:
        self.crossed: list[str] = []
        self.own_names = {"localhost", socket.gethostname(), ""}

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            host = arguments[1][0] if isinstance(arguments[1], tuple) else None
        elif event == "socket.getaddrinfo":
            host = arguments[0]
        else:
            return
        if isinstance(host, bytes):
            host = host.decode("ascii", "replace")
        if isinstance(host, str) and not self._is_here(host, looked_up=event == "socket.getaddrinfo"):
            self.crossed.append(f"{event} {host}")
            raise PermissionError(f"tests stay on this machine; this one tried {event} {host}")

    def _is_here(self, host: str, *, looked_up: bool) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host in self.own_names
        # Looking up a written address asks nobody.
        return looked_up or address.is_loopback or address.is_unspecified


_border = _Border()
sys.addaudithook(_border.hook)


@pytest.fixture(autouse=True)
def _stays_on_this_machine() -> Iterator[None]:
    """Fails the test that tried to leave, even if the code under test swallowed the refusal."""
    _border.crossed.clear()
    yield
    crossed, _border.crossed = _border.crossed, []
    if crossed:
        pytest.fail(f"left this machine: {', '.join(sorted(set(crossed)))}")


@pytest.fixture
def crossings() -> list[str]:
    """For a test about the border itself: what was refused so far. Clear it to be forgiven."""
    return _border.crossed


# --- databases ---


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Names of test databases: SQLite's are files of this run; Postgres's end with AGENTHOST_TEST_DATABASE_SUFFIX, if set.

    Those of a run of ops/test on Postgres are copies of a database that has been migrated.
    """
    from django.conf import settings

    suffix = os.environ.get("AGENTHOST_TEST_DATABASE_SUFFIX", "")
    for database in settings.DATABASES.values():
        if database["ENGINE"].endswith("sqlite"):
            database["TEST"]["NAME"] = str(tmp_path_factory.mktemp("database") / "test.sqlite3")
        elif suffix:
            named = database.setdefault("TEST", {}).get("NAME") or f"test_{database['NAME']}"
            database["TEST"]["NAME"] = f"{named}_{suffix}"
        if database["ENGINE"].endswith("postgres") and (migrated := migrated_database.name()):
            database.setdefault("TEST", {})["TEMPLATE"] = migrated


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[None]:
    """Tests empty the database in a cheaper way than Django's. At the end all connections to it are closed, so that it can be
    dropped: the barrier of the journal and threads that served requests may still have some."""
    from django.db import connection
    from django.test import TransactionTestCase

    from tests.emptying import empty_database

    if request.config.getoption("--reuse-db"):
        # A run that was killed may have left rows.
        with django_db_blocker.unblock():
            empty_database()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: empty_database())
        yield

    from sessions_app.core.log import journal

    journal.close()
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid()"
            )


@pytest.fixture
def on_postgres() -> bool:
    from django.db import connection

    return connection.vendor == "postgresql"


@pytest.fixture(autouse=True)
def _every_test_finds_its_database_empty() -> Iterator[None]:
    """What a process remembers of rows that are never deleted does not hold from test to test."""
    yield
    definitions = sys.modules.get("sessions_app.core.tenancy.definitions")
    if definitions is not None:
        definitions.clear_cache()
    audit_keys = sys.modules.get("sessions_app.core.tenancy.audit_keys")
    if audit_keys is not None:
        audit_keys.forget_known()
    admission = sys.modules.get("sessions_app.core.tenancy.admission")
    if admission is not None:
        admission.forget_all()
    known_callers = sys.modules.get("sessions_app.core.tenancy.known_callers")
    if known_callers is not None:
        known_callers.forget_all()
    for name in ("tenancy.access", "tenancy.api_audit", "tenancy.key_addresses", "tenancy.refused_keys", "records.addresses"):
        module = sys.modules.get(f"sessions_app.core.{name}")
        if module is not None:
            module.forget_known()


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A Redis for tests that stop it."""
    from ops.services import Redis, folder

    with folder() as home:
        server = Redis(home)
        server.start()
        yield server
        server.stop()


# --- what a test must not leave behind ---


@pytest.fixture(autouse=True)
def _leaves_no_stream_open() -> Iterator[None]:
    """A feed that nobody reads any more would keep its queue, and its journal reads, for ever."""
    yield
    feed = sys.modules.get("sessions_app.core.log.feed")
    if feed is None:
        return
    until = time.monotonic() + 30
    while feed.streams_open() and time.monotonic() < until:
        time.sleep(0.01)
    assert feed.streams_open() == 0, "streams were left open"


@pytest.fixture(autouse=True)
def _log_lines_are_about_this_test_alone() -> Iterator[None]:
    """Views say what their log lines are about; a server's requests have a context each, tests share one."""
    from sessions_app.core.base import log_context

    with log_context.about(request="", tenant="", session="", turn=""):
        yield


@pytest.fixture(autouse=True)
def process_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The exit codes with which the code under test wanted to end this process: none, unless the test takes them away."""
    from agents_app import supervision

    codes: list[int] = []
    monkeypatch.setattr(supervision, "leave", codes.append)
    yield codes
    assert codes == [], "a task or thread that must not end has ended"


# --- the scripted model ---


@pytest.fixture(scope="session")
def _model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def model(_model_server: ModelServer) -> Iterator[ModelServer]:
    """The scripted model server, with no records of earlier tests."""
    _model_server.forget()
    yield _model_server
    _model_server.forget()


# --- sample tenants and agents ---


@pytest.fixture
def sample(transactional_db: None) -> SampleTenants:
    """Two tenants with keys, in real transactions."""
    from tests.sample_tenants import make_sample_tenants

    return make_sample_tenants()


@pytest.fixture
def scripted_agents(model: ModelServer) -> Iterator[None]:
    """The registry contains the sample agents, which use the scripted model server."""
    from agents_app import registry
    from tests.sample_tenants import agents

    with registry.use(agents(model.url)):
        yield
