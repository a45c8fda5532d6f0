"""Django system checks: refuse configurations that would lose data or responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.checks import Warning as CheckWarning

from agenthost import env
from agents_app.errors import AgentError, AgentsFileError
from agents_app.spec import AgentSpec

OUR_LAYER = "sessions_app.core.log.broadcast.layer.ChannelLayer"

SQLITE_WITH_PROCESSES = "agenthost.E001"
CLUSTER_WITHOUT_REDIS = "agenthost.E002"
NO_KEY_RING = "agenthost.E003"
FOREIGN_LAYER = "agenthost.E004"
BAD_AGENTS_FILE = "agenthost.E005"
NO_BROKER = "agenthost.E006"
NO_HOSTS = "agenthost.E007"
UNKNOWN_VARIABLE = "agenthost.W008"


@register
def check_database(**_: Any) -> list[CheckMessage]:
    """SQLite is for the embedded server, which is one process."""
    on_sqlite = settings.DATABASES["default"]["ENGINE"].endswith("sqlite")
    if not on_sqlite or settings.AGENTHOST_MODE == "embedded":
        return []
    return [
        Error(
            "SQLite cannot serve several processes.",
            hint="Set DATABASE_URL to a Postgres database, or run the role embedded.",
            id=SQLITE_WITH_PROCESSES,
        )
    ]


@register
def check_redis(**_: Any) -> list[CheckMessage]:
    """Several processes need a pub/sub transport and a broker."""
    if settings.AGENTHOST_ROLE not in ("web", "worker", "beat"):
        return []
    errors: list[CheckMessage] = []
    if not settings.AGENTHOST_REDIS_URL:
        errors.append(
            Error(
                "Web and worker processes need Redis to notify each other of events.",
                hint="Set REDIS_URL, or run the role embedded.",
                id=CLUSTER_WITHOUT_REDIS,
            )
        )
    if not settings.AGENTHOST_BROKER_URL:
        errors.append(
            Error("Celery has no broker.", hint="Set CELERY_BROKER_URL or REDIS_URL.", id=NO_BROKER),
        )
    return errors


@register
def check_hosts(**_: Any) -> list[CheckMessage]:
    """A web process needs its host names, so that pages and links are not built from a client's Host header."""
    if settings.AGENTHOST_ROLE != "web" or settings.ALLOWED_HOSTS:
        return []
    return [
        Error(
            "AGENTHOST_ALLOWED_HOSTS is not set.",
            hint="Set it to the host names that clients use, comma-separated: agents.example.org. * allows every name.",
            id=NO_HOSTS,
        )
    ]


@register
def check_key_ring(**_: Any) -> list[CheckMessage]:
    """Secret options are encrypted with the key ring; a generated one would be lost with its process."""
    if settings.AGENTHOST_KEY_RING:
        return []
    return [
        Error(
            "AGENTHOST_KEY_RING is not set.",
            hint="Set it to one or more keys of 32 bytes in base64, newest first. Generate one: openssl rand -base64 32",
            id=NO_KEY_RING,
        )
    ]


@register
def check_channel_layers(**_: Any) -> list[CheckMessage]:
    """The stock layers drop messages silently or deliver them seconds late across threads."""
    return [
        Error(
            f"The channel layer {name} is {layer.get('BACKEND')}.",
            hint=f"Use {OUR_LAYER}. Streams need its acknowledged joins, bounded queues and overflow reports.",
            id=FOREIGN_LAYER,
        )
        for name, layer in settings.CHANNEL_LAYERS.items()
        if layer.get("BACKEND") != OUR_LAYER
    ]


@register
def check_agents(**_: Any) -> list[CheckMessage]:
    """The agents file must load without errors. Beat does not use it."""
    if settings.AGENTHOST_ROLE == "beat":
        return []
    from agents_app import registry

    try:
        specs = registry.described()
    except AgentsFileError as error:
        return [Error(f"{error.path}: {fault}", id=BAD_AGENTS_FILE) for fault in error.faults]
    except AgentError as error:
        return [Error(str(error), id=BAD_AGENTS_FILE)]
    # Only processes that fill workspaces read the templates: that may take a while.
    if settings.AGENTHOST_ROLE not in ("web", "worker", "embedded") or settings.AGENTHOST_WORKSPACES_DIR is None:
        return []
    return [Error(f"{settings.AGENTHOST_AGENTS_FILE}: {fault}", id=BAD_AGENTS_FILE) for fault in template_faults(specs.values())]


def template_faults(specs: Iterable[AgentSpec]) -> Iterator[str]:
    """One line for each agent whose template cannot fill a workspace. Reads the templates completely."""
    from sessions_app.core.workspaces import templates

    for spec in specs:
        if spec.template is not None and (fault := templates.fault(spec.template)) is not None:
            yield f"agents.workspace of {spec.name} template: {spec.template}: {fault}"


@register
def check_variables(**_: Any) -> list[CheckMessage]:
    """A misspelt variable would leave its setting at the default. No error: it may belong to another release."""
    return [
        CheckWarning(
            f"{name} is not a setting of this release.",
            hint="Unset it; docs/settings.md has all settings." if near is None else f"Did you mean {near}?",
            id=UNKNOWN_VARIABLE,
        )
        for name, near in env.unknown().items()
    ]
