"""All checks, in the order in which one fault causes the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from django.conf import settings
from django.core import checks as system_checks

from agenthost import database_diagnosis, security_warnings
from agenthost.checks import BAD_AGENTS_FILE
from agenthost.doctor import agents, database, machine, processes, redis
from agenthost.doctor.findings import Finding, fail, ok, warning

Check = Callable[[], Iterator[Finding]]


_SAID_ELSEWHERE = (BAD_AGENTS_FILE, "security.W020")


def of_settings() -> Iterator[Finding]:
    """What Django's and our own system checks say, and what is left open on purpose."""
    deployed = settings.AGENTHOST_MODE == "production"
    found = [
        message
        for message in system_checks.run_checks(include_deployment_checks=deployed)
        if message.id not in _SAID_ELSEWHERE and not message.is_silenced() and message.level >= system_checks.WARNING
    ]
    for message in found:
        make = fail if message.is_serious() else warning
        yield make("settings", f"{message.msg} ({message.id})", message.hint or "")
    if deployed and not settings.ALLOWED_HOSTS:
        yield fail(
            "settings", "AGENTHOST_ALLOWED_HOSTS is not set; the role web does not start.", "Set it to the names of this server."
        )
    for line in security_warnings.warnings():
        yield warning("settings", line, "")
    if not found:
        yield ok("settings", f"{settings.AGENTHOST_MODE} mode, data directory {settings.AGENTHOST_VAR_DIR}")


def examine(*, connect: bool) -> Iterator[Finding]:
    """Run every check; one that breaks is a finding like any other and stops no other."""
    checks: dict[str, Check] = {
        "settings": of_settings,
        "database": database.look,
        "schema": database.belonging,
        "redis": redis.look,
        "agents": partial(agents.look, connect=connect),
        "clock": machine.clock,
        "disk": machine.disk,
        "workers": processes.look,
    }
    if database_diagnosis.why_unusable() is not None:
        # The database's own check reports it; these could only say the same.
        del checks["schema"], checks["workers"]
    for name, check in checks.items():
        try:
            yield from check()
        except Exception as error:  # whatever it met, the other checks still help
            detail = f"The check failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            yield fail(name, detail, "If the cause is not clear from this, report it.")
