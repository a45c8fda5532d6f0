"""Runs all checks, causes before their consequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from django.conf import settings
from django.core import checks as system_checks

from agenthost import database_diagnosis, security_warnings
from agenthost.checks import BAD_AGENTS_FILE
from agenthost.doctor import agents, database, machine, processes, redis, traces
from agenthost.doctor.findings import Finding, fail, ok, warning

Check = Callable[[], Iterator[Finding]]


_REPORTED_BY_OTHERS = (BAD_AGENTS_FILE, "security.W020")
"""System checks whose faults other checks of the doctor report."""


def check_settings() -> Iterator[Finding]:
    """Django's and our own system checks, and warnings about protections that are turned off."""
    is_production = settings.AGENTHOST_MODE == "production"
    messages = [
        message
        for message in system_checks.run_checks(include_deployment_checks=is_production)
        if message.id not in _REPORTED_BY_OTHERS and not message.is_silenced() and message.level >= system_checks.WARNING
    ]
    for message in messages:
        finding = fail if message.is_serious() else warning
        yield finding("settings", f"{message.msg} ({message.id})", message.hint or "")
    if is_production and not settings.ALLOWED_HOSTS:
        yield fail(
            "settings",
            "AGENTHOST_ALLOWED_HOSTS is not set; the role web does not start.",
            "Set it to the host names of this server.",
        )
    for line in security_warnings.warnings():
        yield warning("settings", line, "")
    if not messages:
        yield ok("settings", f"{settings.AGENTHOST_MODE} mode, data directory {settings.AGENTHOST_VAR_DIR}")


def run_all(*, connect: bool) -> Iterator[Finding]:
    """Run every check. An exception in a check is a finding too, and does not stop the other checks."""
    checks: dict[str, Check] = {
        "settings": check_settings,
        "database": database.check,
        "schema": database.check_schema_and_keys,
        "redis": redis.check,
        "agents": partial(agents.check, connect=connect),
        "clock": machine.check_clocks,
        "disk": machine.check_disk,
        "workers": processes.check,
        "workspaces": processes.check_workspaces,
        "terminals": processes.check_terminals,
        "audit": processes.check_audit_sinks,
        "traces": traces.check,
    }
    if database_diagnosis.diagnose() is not None:
        # These need the database, whose own check reports the fault.
        for name in ("schema", "workers", "workspaces", "terminals", "audit"):
            del checks[name]
    for name, check in checks.items():
        try:
            yield from check()
        except Exception as error:  # reported, so that the other checks still run
            detail = f"The check raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            yield fail(name, detail, "If this is not a configuration error, report it as a bug.")
