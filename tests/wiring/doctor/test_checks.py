"""Each check of manage.py doctor with a real fault."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from agenthost import database_diagnosis
from agenthost.doctor import agents, database, machine, processes, redis
from agenthost.doctor.all_checks import check_settings, run_all
from agenthost.doctor.findings import Finding, line
from agents_app import registry
from agents_app.spec import AgentSpec, McpSpec, OptionSpec, ProgramSpec
from ops.services import Redis, free_port
from sessions_app.core.records import database_checks, live_workers
from sessions_app.core.tenancy import audit, audit_chain, audit_sinks
from sessions_app.core.terminals import services
from sessions_app.core.worker import housekeeping
from sessions_app.core.workspaces import volume
from sessions_app.models import AuditRecord, InstallationMark
from tests.fakes import steps
from tests.fakes.mcp_server import serving
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


def bad(found: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.state != "ok"]


def the_bad(found: Iterable[Finding]) -> Finding:
    (finding,) = bad(found)
    return finding


@pytest.fixture
def _postgres(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("about Postgres")


def test_the_documentation_example_shows_the_real_schema_line() -> None:
    example = (ROOT / "docs/doctor.md").read_text().split("```")[1]
    (shown,) = [each for each in example.splitlines() if each.split()[1:2] == ["schema"]]
    assert shown in [line(finding) for finding in database.check_schema_and_keys()]


# Settings --------------------------------------------------------------------------------------------


def test_a_failed_system_check_is_a_fault_with_its_hint(settings: Settings) -> None:
    settings.AGENTHOST_KEY_RING = []
    (finding,) = [each for each in check_settings() if each.state == "fail"]
    assert "AGENTHOST_KEY_RING is not set" in finding.detail
    assert "openssl rand" in finding.fix


def test_production_without_its_host_names_is_a_fault(settings: Settings) -> None:
    settings.AGENTHOST_MODE, settings.ALLOWED_HOSTS = "production", []
    assert any("AGENTHOST_ALLOWED_HOSTS is not set" in each.detail for each in check_settings() if each.state == "fail")


# The database ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_postgres")
def test_a_postgres_is_described() -> None:
    first = next(database.check())
    assert first.state == "ok"
    assert first.detail.startswith("Postgres ")
    assert database_diagnosis.address() in first.detail


@pytest.mark.usefixtures("_postgres")
def test_an_unreachable_postgres_is_one_fault_and_the_other_checks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", str(free_port()))
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "hush-hush")
    found = list(run_all(connect=False))
    (fault,) = [each for each in found if each.check == "database"]
    assert fault.state == "fail"
    assert "Start Postgres" in fault.detail
    assert {"settings", "redis", "agents", "disk"} <= {each.check for each in found}
    assert not {"schema", "workers"} & {each.check for each in found}
    assert "hush-hush" not in repr(found)


@pytest.fixture
def patient(on_postgres: bool) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection with a role that may do nothing yet; ``reset role`` makes it the administrator's."""
    if not on_postgres:
        pytest.skip("about Postgres")
    with closing(database_diagnosis.connect()) as made:
        made.execute("create role doctor_patient")
        made.execute("set role doctor_patient")
        try:
            yield made
        finally:
            made.execute("reset role")
            made.execute("drop owned by doctor_patient")
            made.execute("drop role doctor_patient")


def grant(made: psycopg.Connection[tuple[Any, ...]], rights: LiteralString) -> None:
    made.execute("reset role")
    made.execute(f"grant {rights} to doctor_patient")
    made.execute("set role doctor_patient")


def test_a_role_without_privileges_on_the_tables_is_a_fault(patient: psycopg.Connection[tuple[Any, ...]]) -> None:
    fault = the_bad(database.check_privileges(patient, "doctor_patient"))
    assert fault.state == "fail"
    assert "cannot read and write sessions_app_turn" in fault.detail
    grant(patient, "all on sessions_app_turn")
    assert bad(database.check_privileges(patient, "doctor_patient")) == []


def test_a_role_that_can_change_audit_records_is_a_warning(patient: psycopg.Connection[tuple[Any, ...]]) -> None:
    grant(patient, "all on sessions_app_turn, sessions_app_auditrecord")
    assert (
        the_bad(database.check_privileges(patient, "doctor_patient")).detail
        == "The role doctor_patient can change audit records."
    )


@pytest.mark.usefixtures("_postgres")
def test_unsafe_postgres_settings_are_reported() -> None:
    with closing(database_diagnosis.connect()) as made:
        name = made.info.dbname
        made.execute(f'alter database "{name}" set synchronous_commit = off'.encode())
    try:
        with closing(database_diagnosis.connect()) as made:
            found = [each.detail for each in bad(database.check_parameters(made))]
    finally:
        with closing(database_diagnosis.connect()) as made:
            made.execute(f'alter database "{name}" reset synchronous_commit'.encode())
    assert any(detail.startswith("synchronous_commit is off") for detail in found)


@pytest.mark.usefixtures("_postgres")
def test_a_database_that_is_not_utf8_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(database_diagnosis.connect()) as administrator:
        administrator.execute("create database doctor_ascii encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'")
        try:
            monkeypatch.setitem(connection.settings_dict, "NAME", "doctor_ascii")
            with closing(database_diagnosis.connect()) as made:
                found = [each.detail for each in bad(database.check_parameters(made))]
        finally:
            administrator.execute("drop database doctor_ascii with (force)")
    assert "The database's encoding is SQL_ASCII; it must be UTF8." in found


@pytest.mark.usefixtures("_postgres")
def test_a_server_that_is_too_old_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "OLDEST_POSTGRES", 99)
    with closing(database_diagnosis.connect()) as made:
        assert any(each.fix == "Upgrade it to 99 or newer." for each in bad(database.check_postgres(made)))


@pytest.mark.usefixtures("_postgres")
def test_more_connections_than_the_server_allows_are_a_fault(settings: Settings) -> None:
    with closing(database_diagnosis.connect()) as made:
        settings.AGENTHOST_DATABASE_POOL_MAX = 10_000
        fault = the_bad(database.check_connections(made))
    assert fault.state == "fail"
    assert "AGENTHOST_DATABASE_POOL_MAX" in fault.fix


@pytest.mark.usefixtures("_postgres")
def test_a_read_only_server_is_a_fault() -> None:
    with closing(database_diagnosis.connect()) as made:
        made.execute("set default_transaction_read_only = on")
        assert any("read-only" in each.detail for each in bad(database.check_postgres(made)))


def test_a_sqlite_file_with_a_damaged_page_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite3"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("create table django_migrations (text)")
        made.executemany("insert into django_migrations values (?)", [("x" * 2000,)] * 50)
    (whole,) = database.check_sqlite(path)
    assert (whole.state, "intact" in whole.detail) == ("ok", True)
    content = bytearray(path.read_bytes())
    content[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    fault = the_bad(database.check_sqlite(path))
    assert fault.state == "fail"
    assert "is damaged" in fault.detail
    assert "restore a backup" in fault.fix


def test_keys_of_another_database_are_faults(settings: Settings) -> None:
    database_checks.make_marks()
    assert bad(database.check_schema_and_keys()) == []
    settings.AGENTHOST_KEY_RING, settings.SECRET_KEY = [os.urandom(32)], "another"
    assert [each.check for each in bad(database.check_schema_and_keys())] == ["keys", "keys"]


def test_a_missing_migration_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = database_checks.shipped()
    monkeypatch.setattr(database_checks, "shipped", lambda: shipped | {("sessions_app", "9999_next")})
    assert the_bad(database.check_schema_and_keys()).fix == "Run: ops/entrypoint migrate"


# Redis -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_limit_is_met_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "SLOW_MS", 60_000.0)
    monkeypatch.setattr(redis, "_SECONDS", 60.0)


def test_a_redis_that_answers_is_described(own_redis: Redis) -> None:
    (finding,) = redis.check_redis(own_redis.url())
    assert finding.state == "ok"
    assert f"127.0.0.1:{own_redis.port}" in finding.detail


def test_an_unreachable_redis_or_a_refused_password_is_a_fault(own_redis: Redis) -> None:
    refused = the_bad(redis.check_redis(f"redis://:hush-hush@127.0.0.1:{own_redis.port}/0"))
    assert "refuses the user or password" in refused.detail
    own_redis.stop()
    away = the_bad(redis.check_redis(own_redis.url()))
    assert "does not answer" in away.detail
    assert "Start Redis" in away.fix
    assert "hush-hush" not in repr(refused) + repr(away)


def test_a_redis_that_hangs_is_a_fault_in_time(own_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "_SECONDS", 0.3)
    assert own_redis.pid is not None
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        assert "does not answer" in the_bad(redis.check_redis(own_redis.url())).detail
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)


def test_a_user_that_may_not_publish_is_a_fault(own_redis: Redis) -> None:
    with redis.client(own_redis.url()) as made:
        made.execute_command("ACL", "SETUSER", "quiet", "on", ">pw", "allkeys", "allchannels", "+@all", "-publish")
    fault = the_bad(redis.check_redis(f"redis://quiet:pw@127.0.0.1:{own_redis.port}/0"))
    assert "PUBLISH" in fault.fix


def test_a_redis_that_is_old_or_slow_is_named(own_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "SLOW_MS", -1.0)
    assert the_bad(redis.check_redis(own_redis.url())).state == "warning"
    monkeypatch.setattr(redis, "OLDEST", 99)
    assert the_bad(redis.check_redis(own_redis.url())).fix == "Upgrade it to 99 or newer."


def test_a_separate_broker_that_does_not_answer_is_a_fault(own_redis: Redis, settings: Settings) -> None:
    settings.AGENTHOST_REDIS_URL = own_redis.url()
    settings.AGENTHOST_BROKER_URL = own_redis.url(1)
    assert [each.check for each in redis.check()] == ["redis", "broker"]
    assert bad(redis.check()) == []
    port = free_port()
    settings.AGENTHOST_BROKER_URL = f"redis://:hush-hush@127.0.0.1:{port}/0"
    fault = the_bad(redis.check())
    assert (fault.check, fault.detail.partition(" does")[0]) == ("broker", f"The broker at 127.0.0.1:{port}")
    assert "hush" not in repr(fault)


def test_a_cluster_without_a_redis_is_a_fault(settings: Settings) -> None:
    settings.AGENTHOST_REDIS_URL = None
    settings.AGENTHOST_MODE = "production"
    assert the_bad(redis.check()).fix == "Set REDIS_URL."
    settings.AGENTHOST_MODE = "embedded"
    assert bad(redis.check()) == []


# Agents ----------------------------------------------------------------------------------------------


def test_a_broken_agents_file_is_a_fault_with_its_path(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agents.toml"
    path.write_text('[[agents]]\nname = "a"\nmodel = 7\n')
    settings.AGENTHOST_AGENTS_FILE = path
    monkeypatch.setattr(registry, "_agents", None)
    found = bad(agents.check(connect=False))
    assert found
    assert all(str(path) in each.detail for each in found)


def test_an_agent_without_a_key_is_a_fault_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents_app.providers.credentials._defaults", {})
    fault = the_bad(agents.check_providers([AgentSpec("a", "anthropic:claude")], connect=False))
    assert fault.detail == "a: anthropic: no key."
    assert fault.fix == "Set ANTHROPIC_API_KEY, or api_key in the agents file."


def test_an_agent_whose_sessions_bring_the_key_is_not_a_fault() -> None:
    own = AgentSpec("a", "anthropic:claude", api_key="{token}", options=(OptionSpec("secret", "token"),))
    for connect in (False, True):
        (finding,) = agents.check_providers([own], connect=connect)
        assert (finding.state, finding.detail) == ("ok", "a: anthropic: needs each session's own token")


def test_a_provider_is_asked_with_the_key_and_its_refusal_is_shown_without_it(model: ModelServer) -> None:
    spec = AgentSpec("a", "openai-chat:gpt-test", base_url=model.url, api_key="sk-hush-hush")
    model.enqueue([steps.text("Hello")])
    assert bad(agents.check_providers([spec], connect=True)) == []
    assert model.requests[-1].api_key == "sk-hush-hush"
    model.enqueue([steps.status(401, code="invalid_api_key")])
    fault = the_bad(agents.check_providers([spec], connect=True))
    assert "401" in fault.detail
    assert "hush" not in repr(fault)


def test_a_provider_that_cannot_be_reached_is_a_fault() -> None:
    spec = AgentSpec("a", "openai-chat:gpt-test", base_url=f"http://127.0.0.1:{free_port()}/v1", api_key="k")
    assert the_bad(agents.check_providers([spec], connect=True)).state == "fail"


def test_nothing_is_contacted_without_connect(model: ModelServer) -> None:
    spec = AgentSpec("a", "openai-chat:gpt-test", base_url=model.url, api_key="k", mcp=(McpSpec("s", "http://127.0.0.1:9/mcp"),))
    assert bad(agents.check_providers([spec], connect=False)) == []
    (server,) = agents.check_mcp_servers([spec], connect=False)
    assert "not contacted" in server.detail
    assert model.requests == []


def test_programs_that_cannot_be_started_are_a_warning_that_says_why(settings: Any) -> None:
    settings.AGENTHOST_MCP_COMMANDS = False
    spec = AgentSpec("a", "demo:", mcp=(McpSpec("harbour", program=ProgramSpec(("x",))),))
    found, named = agents.check_mcp_servers([spec], connect=False)
    assert "no MCP server is started as a program: programs are off on this server (AGENTHOST_MCP_COMMANDS)" in found.detail
    assert "a/harbour" in named.detail


def test_mcp_servers_are_contacted_and_unreachable_ones_are_faults() -> None:
    with serving() as server:
        spec = AgentSpec("a", "demo:", mcp=(McpSpec("harbour", server.url),))
        assert bad(agents.check_mcp_servers([spec], connect=True)) == []
    fault = the_bad(agents.check_mcp_servers([spec], connect=True))
    assert fault.detail.startswith("a/harbour: ")


# The machine -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_postgres")
def test_a_clock_difference_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CLOCK_SECONDS", 20.0)
    assert bad(machine.check_clocks()) == []
    real = time.time
    monkeypatch.setattr(machine, "now", lambda: real() - 60)
    found = bad(machine.check_clocks())
    assert [each.state for each in found] == ["fail", "fail"]
    assert "behind the clock of the database" in found[0].detail


def test_a_disk_that_is_nearly_full_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine.free_space("data", tmp_path).detail.endswith(f"free for data ({tmp_path})")
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(machine, "FEW_BYTES", free * 2)
    monkeypatch.setattr(machine, "LEAST_BYTES", 0)
    assert machine.free_space("data", tmp_path).state == "warning"
    monkeypatch.setattr(machine, "LEAST_BYTES", free * 2)
    assert machine.free_space("data", tmp_path).state == "fail"


# Processes -------------------------------------------------------------------------------------------


def test_a_deployment_without_a_worker_is_a_fault(settings: Settings) -> None:
    settings.AGENTHOST_MODE = "production"
    assert (processes.check_workers().state, processes.check_workers().fix) == ("fail", "Start one: ops/entrypoint worker")
    live_workers.announce("worker-1")
    assert processes.check_workers().state == "ok"


def test_a_queue_without_a_worker_is_named_with_the_command_that_starts_one() -> None:
    with registry.use([AgentSpec("a", "demo:", queue="heavy")]):
        # No worker at all is one finding, not one of each queue.
        assert list(processes.check_queues()) == []
        live_workers.announce("worker-1", ["default"])
        (found,) = processes.check_queues()
        assert (found.state, found.detail) == ("warning", "No live worker serves the queue heavy.")
        assert "ops/entrypoint worker --queues heavy" in found.fix
        live_workers.announce("worker-2", ["heavy"])
        (found,) = processes.check_queues()
        assert (found.state, found.detail) == ("ok", "each has a worker: default, heavy")
    assert list(processes.check_queues()) == []


def test_a_missing_beat_is_noticed_by_the_missing_housekeeping(settings: Settings) -> None:
    settings.AGENTHOST_MODE = "production"
    assert "duty_not_published" in processes.check_beat().fix
    housekeeping.run()
    assert processes.check_beat().state == "ok"
    InstallationMark.objects.filter(name="housekeeping").update(updated_at=timezone.now() - timedelta(hours=2))
    assert processes.check_beat().detail == "The last housekeeping was 120 minutes ago."


def test_an_audit_that_does_not_reach_its_sink_is_a_warning(settings: Settings) -> None:
    assert list(processes.check_audit_sinks()) == []
    settings.AGENTHOST_AUDIT_SYSLOG = "tcp://127.0.0.1:1"
    assert [each.state for each in processes.check_audit_sinks()] == ["ok"]
    audit.record(actor="x", action=audit.Action.KEY_ISSUED, target="key x")
    audit_chain.link_new()
    audit_sinks.keep_up(0.1)
    (found,) = processes.check_audit_sinks()
    assert (found.state, found.check) == ("warning", "audit")
    assert "does not reach the syslog (1 records" in found.detail
    assert "AGENTHOST_AUDIT_SYSLOG" in found.fix


def test_a_volume_of_workspaces_that_is_not_this_databases_is_a_fault(settings: Settings, tmp_path: Path) -> None:
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "first"
    volume.forget()
    assert [each.state for each in processes.check_workspaces()] == ["ok"]
    assert not (tmp_path / "first").exists()
    assert volume.fault() is None
    assert [each.state for each in processes.check_workspaces()] == ["ok"]
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "second"
    tmp_path.joinpath("second").mkdir()
    fault = the_bad(processes.check_workspaces())
    assert (fault.state, "accept_keys --workspaces" in fault.fix) == ("fail", True)
    call_command("accept_keys", "--workspaces", stdout=StringIO(), stderr=StringIO())
    assert [each.state for each in processes.check_workspaces()] == ["ok"]
    assert AuditRecord.objects.filter(action="installation_keys_accepted", target="workspaces").count() == 1
    volume.forget()


def test_a_server_without_a_terminal_service_is_reported(settings: Settings) -> None:
    settings.AGENTHOST_TERMINALS = False
    assert list(processes.check_terminals()) == []
    settings.AGENTHOST_TERMINALS = True
    assert "no terminal service" in the_bad(processes.check_terminals()).detail
    services.renew("one", "bubblewrap is not installed")
    assert "bubblewrap" in the_bad(processes.check_terminals()).detail
    services.renew("two")
    assert [each.state for each in processes.check_terminals()] == ["ok"]


# All of it -------------------------------------------------------------------------------------------


def test_an_exception_in_a_check_is_a_finding_and_the_other_checks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Finding]:
        raise RuntimeError("postgres://user:hush-hush@db/x")

    monkeypatch.setattr(machine, "check_disk", broken)
    found = list(run_all(connect=False))
    assert [each.state for each in found if each.check == "disk"] == ["fail"]
    assert found[-1].check == "traces"
