"""Resolved agent definitions as rows, addressed by digest.

A turn names one, so a worker runs what was in force when the turn began, whatever agents file it has
loaded itself. Secrets of the operator (API keys, headers) stand sealed beside the document.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from agents_app import exact_json, registry
from agents_app import spec as agent_spec
from agents_app.spec import AgentSpec
from sessions_app.core.base import sealing
from sessions_app.models import AgentDefinition

_known: dict[int, tuple[AgentSpec, int]] = {}
"""Rows by the identity of what they define: a process loads its agents once, and definitions are never
deleted, so what was there once is there still."""
_formats: dict[int, int] = {}


def _digest(document: str, hidden: dict[str, str]) -> str:
    # A plain digest over a weak secret could be guessed from the row, hence keyed fingerprints.
    marks = {name: sealing.fingerprint(value) for name, value in sorted(hidden.items())}
    return hashlib.sha256(exact_json.dumps([document, marks]).encode()).hexdigest()


def format_of(definition: int) -> int:
    """The oldest way of storing a turn that can hold one by this definition; older workers leave it alone."""
    found = _formats.get(definition)
    if found is None:
        row = AgentDefinition.objects.only("digest").get(pk=definition)
        # Not remembered: the row may be this transaction's own, and rolled back.
        found = agent_spec.format_of(by_digest(row.pk, row.digest))
    return found


def resolve(spec: AgentSpec) -> int:
    """The row of this definition, made if it is new. Runs inside the caller's transaction."""
    known = _known.get(id(spec))
    if known is not None and known[0] is spec:
        return known[1]
    public, hidden = agent_spec.to_document(spec)
    document = exact_json.dumps(public)
    digest = _digest(document, hidden)
    sealed = sealing.seal(exact_json.dumps(hidden), ["definition", digest]) if hidden else None
    row, made = AgentDefinition.objects.get_or_create(
        digest=digest, defaults={"agent_name": spec.name, "document": document, "sealed": sealed}
    )
    if not made:
        # One that was made here may yet be rolled back; the next turn finds it.
        _known[id(spec)] = (spec, row.pk)
        _formats[row.pk] = agent_spec.format_of(spec)
    return row.pk


def prepare(agent: str) -> None:
    """Make the row of what is in force under this name, if it is new, before the caller's transaction begins.

    The row is every tenant's. In a transaction that waits for one tenant's lock, all others would wait for the row.
    """
    spec = registry.find(agent)
    if spec is not None and id(spec) not in _known:
        resolve(spec)


def clear_cache() -> None:
    """Drop what this process knows of the rows (their database was emptied)."""
    _known.clear()
    _formats.clear()


@lru_cache(maxsize=256)
def by_digest(definition: int, digest: str) -> AgentSpec:
    """The definition of this row, read once a process: what stands under a digest never changes."""
    row = AgentDefinition.objects.get(pk=definition)
    hidden = exact_json.loads(sealing.unseal(bytes(row.sealed), ["definition", digest])) if row.sealed else {}
    return agent_spec.from_document(exact_json.loads(row.document), hidden)


def reseal() -> tuple[int, int]:
    """Seal the secrets of definitions under the newest key: how many were done, and how many cannot be opened."""
    newest, done, lost = sealing.newest_key_id(), 0, 0
    for row in AgentDefinition.objects.filter(sealed__isnull=False).iterator():
        old = bytes(row.sealed or b"")
        if sealing.key_id_of(old) != newest:
            place = ["definition", row.digest]
            if not sealing.opens(old, place):
                lost += 1
                continue
            fresh = sealing.seal(sealing.unseal(old, place), place)
            done += AgentDefinition.objects.filter(pk=row.pk, sealed=old).update(sealed=fresh)
    return done, lost


def newest_opens() -> bool:
    """Whether the key ring opens the newest definition's secrets; True if there are none."""
    row = AgentDefinition.objects.filter(sealed__isnull=False).order_by("-pk").first()
    return row is None or sealing.opens(bytes(row.sealed or b""), ["definition", row.digest])
