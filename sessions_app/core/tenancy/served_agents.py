"""Which agents each process serves, and to how many streams, for operators: rows that processes renew while they are alive."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Sum
from django.db.models.functions import Now

from agents_app import exact_json
from agents_app.spec import AgentSpec, to_document
from sessions_app.core.tenancy import key_watch
from sessions_app.core.tenancy.quotas import Quota
from sessions_app.models import AgentsOfProcess

RENEW_SECONDS = 60.0
_ALIVE = timedelta(seconds=3 * RENEW_SECONDS)
_KEPT = timedelta(minutes=30)
LONGEST_FAULT = 4000


@dataclass(frozen=True, slots=True)
class Load:
    """The last attempt of a process to load its agents. ``is_new``: it was made just now, not only reported again."""

    digest: str
    fault: str
    is_new: bool


def digest(specs: Iterable[AgentSpec]) -> str:
    """Of everything in the agents that is not secret."""
    documents = sorted(exact_json.dumps(to_document(spec)[0]) for spec in specs)
    return hashlib.sha256("\n".join(documents).encode()).hexdigest()


def note(process: str, role: str, load: Load) -> None:
    """Write or renew the row of a process, and delete the rows of those that are long gone."""
    facts = {
        "role": role,
        "host": socket.gethostname()[:200],
        "pid": os.getpid(),
        "digest": load.digest,
        "streams": _streams(),
        "seen_at": Now(),
    }
    changes = {**facts, "fault": load.fault[:LONGEST_FAULT]}
    if load.is_new:
        changes["tried_at"] = Now()
        if not load.fault:
            changes["loaded_at"] = Now()
    if not AgentsOfProcess.objects.filter(process=process).update(**changes):
        AgentsOfProcess.objects.create(process=process, **{"loaded_at": Now(), "tried_at": Now(), **changes})
    AgentsOfProcess.objects.filter(seen_at__lt=Now() - _KEPT).delete()


def _streams() -> int:
    return key_watch.open_now(Quota.STREAMS_AT_ONCE) + key_watch.open_now(Quota.CONNECTIONS_AT_ONCE)


def leave(process: str) -> None:
    AgentsOfProcess.objects.filter(process=process).delete()


def alive() -> list[AgentsOfProcess]:
    """The rows of the processes that have been seen lately."""
    return list(AgentsOfProcess.objects.filter(seen_at__gt=Now() - _ALIVE)[:500])


@dataclass(frozen=True, slots=True)
class Webs:
    """``streams``: the open streams and connections of all of them, up to a minute ago."""

    number: int
    streams: int


def webs_alive() -> Webs:
    """The web processes that have been seen lately; an embedded server is one."""
    webs = AgentsOfProcess.objects.filter(seen_at__gt=Now() - _ALIVE, role__in=("web", "embedded"))
    found = webs.aggregate(number=Count("pk"), streams=Sum("streams", default=0))
    return Webs(found["number"], found["streams"])
