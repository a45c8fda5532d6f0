"""Stored agent definitions, addressed by digest.

A turn refers to one, so a worker runs the definition that was current when the turn began, even if it has loaded another
agents file. The operator's secrets (API keys, headers) are stored encrypted next to the document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

from agents_app import exact_json, registry
from agents_app import spec as agent_spec
from agents_app.spec import AgentSpec
from sessions_app.core.base import sealing
from sessions_app.models import AgentDefinition

_known: dict[int, tuple[AgentSpec, int]] = {}
"""Cached rows by the identity of their spec: a process loads its agents once, and definitions are never deleted."""
_facts: dict[int, tuple[int, str]] = {}
"""Of each row the oldest turn format that supports it, and the queue of its turns."""


def _digest(document: str, hidden: dict[str, str]) -> str:
    # Keyed fingerprints, because a weak secret could be guessed from a plain digest.
    marks = {name: sealing.fingerprint(value) for name, value in sorted(hidden.items())}
    return hashlib.sha256(exact_json.dumps([document, marks]).encode()).hexdigest()


def format_of(definition: int) -> int:
    """The oldest turn format that supports this definition; workers that know only older formats skip its turns."""
    return format_and_queue(definition)[0]


def format_and_queue(definition: int) -> tuple[int, str]:
    """``format_of``, and the queue of the turns that begin with this definition."""
    found = _facts.get(definition)
    if found is None:
        row = AgentDefinition.objects.only("digest").get(pk=definition)
        # Not cached: the row may be new in this transaction, and rolled back.
        found = _facts_of(by_digest(row.pk, row.digest))
    return found


def _facts_of(spec: AgentSpec) -> tuple[int, str]:
    return agent_spec.format_of(spec), spec.queue


def resolve(spec: AgentSpec) -> int:
    """The row of this definition, created if it is new. Runs inside the caller's transaction."""
    known = _known.get(id(spec))
    if known is not None and known[0] is spec:
        return known[1]
    public, hidden = agent_spec.to_document(spec)
    document = exact_json.dumps(public)
    digest = _digest(document, hidden)
    sealed = sealing.seal(exact_json.dumps(hidden), ["definition", digest]) if hidden else None
    row, created = AgentDefinition.objects.get_or_create(
        digest=digest, defaults={"agent_name": spec.name, "document": document, "sealed": sealed}
    )
    if not created:
        # A row created here may still be rolled back; the next turn caches it.
        _known[id(spec)] = (spec, row.pk)
        _facts[row.pk] = _facts_of(spec)
    return row.pk


def prepare(agent: str) -> None:
    """Create the row of an agent's current definition, if it is new, before the caller's transaction begins.

    The row is shared by all tenants: created in a transaction that waits for one tenant's lock, it would block all others.
    """
    spec = registry.find(agent)
    if spec is not None and id(spec) not in _known:
        resolve(spec)


def clear_cache() -> None:
    """For tests: forget the cached rows, because the database was emptied."""
    _known.clear()
    _facts.clear()


@lru_cache(maxsize=256)
def by_digest(definition: int, digest: str) -> AgentSpec:
    """The definition of this row, read once per process: a definition with the same digest never changes."""
    row = AgentDefinition.objects.get(pk=definition)
    hidden = exact_json.loads(sealing.unseal(bytes(row.sealed), ["definition", digest])) if row.sealed else {}
    return agent_spec.from_document(exact_json.loads(row.document), hidden)


def _place(row: AgentDefinition) -> list[str | int]:
    return ["definition", row.digest]


def reseal() -> Iterator[tuple[int, int]]:
    """As ``sealing.reseal``."""
    return sealing.reseal(AgentDefinition, _place)


def newest_opens() -> bool:
    """Whether the key ring decrypts the secrets of the newest definition; True if there are none."""
    return sealing.newest_opens(AgentDefinition.objects.all(), _place)
