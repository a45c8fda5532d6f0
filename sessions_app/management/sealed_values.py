"""Everything that is sealed with the key ring: counts by key, and sealing it again with the newest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from sessions_app.accounts import second_factor
from sessions_app.core.base import sealing
from sessions_app.core.records import database_checks, options
from sessions_app.core.tenancy import audit_keys, definitions, webhooks
from sessions_app.models import AgentDefinition, AuditKey, OptionValue, WebhookSecret


@dataclass(frozen=True, slots=True)
class Kind:
    """Sealed values of one kind. ``reseal`` yields how many it changed and how many it cannot decrypt, page by page."""

    name: str
    counts: Callable[[], dict[str, int]]
    reseal: Callable[[], Iterator[tuple[int, int]]]


KINDS = (
    Kind("agents' secrets", partial(sealing.counts, AgentDefinition), definitions.reseal),
    Kind("second factors", second_factor.sealed_counts, second_factor.reseal),
    Kind("keys of the audit", partial(sealing.counts, AuditKey), audit_keys.reseal),
    Kind("webhooks' secrets", partial(sealing.counts, WebhookSecret), webhooks.reseal),
    Kind("sessions' options", partial(sealing.counts, OptionValue), options.reseal),
)


def counts_by_key() -> dict[str, dict[str, int]]:
    """For each key's id how many values of each kind are sealed with it; the ring's keys are always included."""
    found: dict[str, dict[str, int]] = {key: {} for key in sealing.key_ids()}
    for kind in KINDS:
        for key, count in kind.counts().items():
            found.setdefault(key, {})[kind.name] = count
    mark = database_checks.key_ring_mark()
    if mark is not None:
        found.setdefault(sealing.key_id_of(mark).hex(), {})["test value"] = 1
    return found


def outdated(counts: Mapping[str, Mapping[str, int]]) -> int:
    """How many of these values are sealed with another key than the newest."""
    newest = sealing.newest_key_id().hex()
    return sum(sum(of_key.values()) for key, of_key in counts.items() if key != newest)
