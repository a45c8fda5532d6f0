"""System checks: shapes of a deployment that would lose data or answers, refused before they start."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from agents_app.errors import AgentError, AgentsFileError

OUR_LAYER = "sessions_app.core.log.broadcast.layer.ChannelLayer"

SQLITE_WITH_PROCESSES = "agenthost.E001"
CLUSTER_WITHOUT_REDIS = "agenthost.E002"
NO_KEY_RING = "agenthost.E003"
FOREIGN_LAYER = "agenthost.E004"
BAD_AGENTS_FILE = "agenthost.E005"
NO_BROKER = "agenthost.E006"
NO_HOSTS = "agenthost.E007"


@register
def check_database(**_: Any) -> list[CheckMessage]:
    """SQLite belongs to the one process of the embedded server."""
    on_sqlite = settings.DATABASES["default"]["ENGINE"].endswith("sqlite3")
    if not on_sqlite or settings.AGENTHOST_MODE == "embedded":
        return []
    return [
        Error(
            "SQLite cannot serve several processes.",
            hint="Set DATABASE_URL to a Postgres, or run the role embedded.",
            id=SQLITE_WITH_PROCESSES,
        )
    ]


@register
def check_carrier(**_: Any) -> list[CheckMessage]:
    """Processes that serve one database need a carrier of announcements and a broker between them."""
    if settings.AGENTHOST_ROLE not in ("web", "worker", "beat"):
        return []
    errors: list[CheckMessage] = []
    if not settings.AGENTHOST_REDIS_URL:
        errors.append(
            Error(
                "Web and worker processes need a Redis to tell each other what happened.",
                hint="Set REDIS_URL, or run the role embedded.",
                id=CLUSTER_WITHOUT_REDIS,
            )
        )
    if not settings.AGENTHOST_BROKER_URL:
        errors.append(
            Error("There is no broker for Celery's tasks.", hint="Set CELERY_BROKER_URL or REDIS_URL.", id=NO_BROKER),
        )
    return errors


@register
def check_hosts(**_: Any) -> list[CheckMessage]:
    """A web process knows its names: pages and links must not be made with a name that a stranger chose."""
    if settings.AGENTHOST_ROLE != "web" or settings.ALLOWED_HOSTS:
        return []
    return [
        Error(
            "AGENTHOST_ALLOWED_HOSTS is not set.",
            hint="The names that clients use for this server, comma-separated: agents.example.org. * allows every name.",
            id=NO_HOSTS,
        )
    ]


@register
def check_key_ring(**_: Any) -> list[CheckMessage]:
    """Secret options are sealed under the key ring; one that is made up is lost with its process."""
    if settings.AGENTHOST_KEY_RING:
        return []
    return [
        Error(
            "AGENTHOST_KEY_RING is not set.",
            hint="One or more keys of 32 bytes in base64, newest first; a new one: openssl rand -base64 32",
            id=NO_KEY_RING,
        )
    ]


@register
def check_channel_layers(**_: Any) -> list[CheckMessage]:
    """The stock layers drop messages silently or deliver them seconds late across threads."""
    return [
        Error(
            f"The channel layer {name} is {layer.get('BACKEND')}.",
            hint=f"Streams rely on {OUR_LAYER}: what it joins, bounds and reports, the stock layers do not.",
            id=FOREIGN_LAYER,
        )
        for name, layer in settings.CHANNEL_LAYERS.items()
        if layer.get("BACKEND") != OUR_LAYER
    ]


@register
def check_agents(**_: Any) -> list[CheckMessage]:
    """The agents file is read whole before anything is served by it."""
    from agents_app import registry

    try:
        registry.described()
    except AgentsFileError as error:
        return [Error(f"{error.path}: {fault}", id=BAD_AGENTS_FILE) for fault in error.faults]
    except AgentError as error:
        return [Error(str(error), id=BAD_AGENTS_FILE)]
    return []
