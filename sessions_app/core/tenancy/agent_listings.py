"""Which agents tenants are shown: one listing is in force, and each tenant's own is changed with an event.

A process loads its agents once, and two processes may have loaded different ones: while an operator puts a new
file in place, and for ever if something went wrong. What clients are shown must not depend on whom they ask. So the
process that starts last publishes its agents, once; every process shows its tenants what was published last. A tenant
is moved to another listing by whoever has connections of it, in the transaction that appends the event.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from django.db.models.functions import Now

from agents_app import exact_json, registry
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent, SessionRead
from sessions_app.core.tenancy import access, agents
from sessions_app.models import AgentListing, Session, ShownListing, Tenant

log = logging.getLogger(__name__)

Specs = Mapping[str, AgentSpec]

_SHOWN = ("name", "model", "title", "description", "images", "context_tokens")
_SHOWN_OF_OPTION = ("type", "name", "title", "description", "default", "options")
_SHOWN_OF_TOOL = ("name", "title", "description", "parameters")
_PATIENCE = timedelta(seconds=60)
"""How long nobody may have served what is in force, before a process that serves something else publishes that anew."""


@dataclass(slots=True)
class _Process:
    """What this process has published. ``patience`` doubles each time it does so again: two that serve different
    agents for ever must not take turns for ever."""

    published: Specs | None = None
    patience: timedelta = _PATIENCE


_process = _Process()


@dataclass(frozen=True, slots=True)
class _OwnListing:
    specs: Specs
    document: str
    digest: str


_own_now: _OwnListing | None = None


def _own() -> _OwnListing:
    """What this process serves, as clients are shown it."""
    global _own_now
    specs, found = registry.agents(), _own_now
    if found is None or found.specs is not specs:
        document = exact_json.dumps([_document(spec) for spec in specs.values()])
        found = _own_now = _OwnListing(specs, document, hashlib.sha256(document.encode()).hexdigest())
    return found


# --- what is shown of an agent -------------------------------------------------------------------


def _document(spec: AgentSpec) -> dict[str, Any]:
    """Nothing secret: no key, no header, no default of a secret option."""
    shown = {name: getattr(spec, name) for name in _SHOWN}
    shown["options"] = [
        {name: "" if name == "default" and option.type == "secret" else getattr(option, name) for name in _SHOWN_OF_OPTION}
        for option in spec.options
    ]
    shown["tools"] = [{name: getattr(tool, name) for name in _SHOWN_OF_TOOL} for tool in spec.exposed_tools]
    for tool in shown["tools"]:
        tool["parameters"] = dict(tool["parameters"])
    return shown


def _spec(document: Mapping[str, Any]) -> AgentSpec:
    """An agent that can be shown, and nothing else. What a newer release has written besides is left out."""
    known = {name: document[name] for name in _SHOWN}
    known["images"] = tuple(known["images"])
    options = [{name: option[name] for name in _SHOWN_OF_OPTION} for option in document["options"]]
    tools = [{name: tool[name] for name in _SHOWN_OF_TOOL} for tool in document["tools"]]
    return AgentSpec(
        **known,
        options=tuple(OptionSpec(**{**option, "options": tuple(option["options"])}) for option in options),
        tools=tuple(ToolSpec(**tool, source="") for tool in tools),
    )


@lru_cache(maxsize=16)
def _specs_of(digest: str) -> Specs:
    return _read(AgentListing.objects.values_list("document", flat=True).get(digest=digest))


def _read(document: str) -> Specs:
    return MappingProxyType({each["name"]: _spec(each) for each in exact_json.loads(document)})


def card(spec: AgentSpec) -> dict[str, Any]:
    """What a root shows of an agent."""
    return {
        "name": spec.name,
        "title": spec.title or spec.name,
        "description": spec.description or "",
        "models": list(agents.models(spec)),
        "context_tokens": spec.context_tokens,
        "images": bool(spec.images),
    }


# --- what a tenant is shown ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """``allowed``: the names that the tenant may use; None: all."""

    specs: Specs
    allowed: Collection[str] | None

    def cards(self) -> list[dict[str, Any]]:
        return [card(spec) for spec in self.specs.values() if self.allowed is None or spec.name in self.allowed]


def of(tenant: int) -> Listing:
    """What the tenant is shown at this moment: read it in one snapshot with the counter."""
    row = ShownListing.objects.filter(pk=tenant).values_list("listing__digest", "agents").first()
    if row is None:
        # Nobody watches this tenant, so nothing that was shown can become wrong.
        return Listing(registry.agents(), Tenant.objects.values_list("allowed_agents", flat=True).get(pk=tenant))
    return Listing(_specs_of(row[0]), row[1])


def visible(cards: Iterable[Mapping[str, Any]], key_agents: Collection[str] | None) -> list[Mapping[str, Any]]:
    """Of what a tenant is shown, what one key of it is."""
    return [each for each in cards if key_agents is None or each["name"] in key_agents]


def root(caller: Caller) -> tuple[int, int, list[Mapping[str, Any]]]:
    """The tenant's number, the caller's count of sessions and its agents, at one moment."""
    with journal.snapshot():
        seq, sessions = _counter_and_sessions(caller)
        cards = of(caller.tenant).cards()
    journal.barrier()
    return seq, sessions, visible(cards, caller.key_agents)


def counter_and_sessions(caller: Caller) -> tuple[int, int]:
    """The tenant's number, and how many sessions exist for the caller, at one moment."""
    with journal.snapshot():
        found = _counter_and_sessions(caller)
    journal.barrier()
    return found


def _counter_and_sessions(caller: Caller) -> tuple[int, int]:
    seq, sessions = journal.counter_and_sessions(caller.tenant)
    return seq, sessions if caller.key_agents is None else access.visible(caller).count()


def events_after(
    caller: Caller, sessions: Collection[int], after: int, limit: int, most_bytes: int
) -> tuple[SessionRead, int | None]:
    """``journal.read_several``, and for a limited key how many sessions exist for it at that moment."""
    if caller.key_agents is None:
        return journal.read_several(caller.tenant, sessions, after, limit, most_bytes), None
    with journal.snapshot():
        read = journal.read_several(caller.tenant, sessions, after, limit, most_bytes)
        return read, access.visible(caller).count()


# --- which listing is in force -------------------------------------------------------------------


def _in_force() -> AgentListing:
    """What was published last. A process's first look publishes its own agents."""
    own = _own()
    newest = _newest()
    if newest is None or (newest.digest != own.digest and (_process.published is not own.specs or _is_abandoned(newest))):
        if _process.published is own.specs and newest is not None:
            log.warning("no server has shown the agents in force for %d s: those of this one are", _process.patience.seconds)
            _process.patience *= 2
        AgentListing.objects.update_or_create(
            digest=own.digest, defaults={"document": own.document, "published_at": Now(), "seen_at": Now()}
        )
        newest = _newest()
        assert newest is not None
    _process.published = own.specs
    return newest


def _newest() -> AgentListing | None:
    return AgentListing.objects.only("digest").order_by("-published_at", "-pk").first()


def _is_abandoned(listing: AgentListing) -> bool:
    """Whoever published it is gone: the last to start was an old release's, in the middle of an upgrade."""
    return AgentListing.objects.filter(pk=listing.pk, seen_at__lt=Now() - _process.patience).exists()


def renew() -> None:
    """Say that this process serves its agents still."""
    AgentListing.objects.filter(digest=_own().digest).update(seen_at=Now())


def outdated(tenants: Collection[int]) -> list[int]:
    """Those that are shown something else than they are to be."""
    listing = _in_force()
    shown = {
        pk: (listed, allowed)
        for pk, listed, allowed in ShownListing.objects.filter(pk__in=tenants).values_list("pk", "listing", "agents")
    }
    wanted = Tenant.objects.filter(pk__in=tenants).values_list("pk", "allowed_agents")
    return [pk for pk, allowed in wanted if shown.get(pk) != (listing.pk, allowed)]


def show(tenant: int) -> None:
    """Show the tenant what is in force; an event if that changes anything for it."""
    if not outdated([tenant]):
        return
    if not ShownListing.objects.filter(pk=tenant).exists():
        allowed = Tenant.objects.values_list("allowed_agents", flat=True).get(pk=tenant)
        first = ShownListing(tenant_id=tenant, listing=_in_force(), agents=allowed)
        ShownListing.objects.bulk_create([first], ignore_conflicts=True)
        return
    with journal.transaction() as tx:
        # Without its listing: of a row that another has just changed, a join would find nothing.
        row = ShownListing.objects.select_for_update(no_key=True).get(pk=tenant)
        listing = _in_force()
        allowed = Tenant.objects.values_list("allowed_agents", flat=True).get(pk=tenant)
        before, after = Listing(_specs_of(row.listing.digest), row.agents), Listing(_specs_of(listing.digest), allowed)
        ShownListing.objects.filter(pk=tenant).update(listing=listing, agents=allowed)
        changed = _used_by(tenant, _changed(before.specs, after.specs))
        if changed or before.cards() != after.cards():
            payload = {"agents": after.cards(), "changed": changed, "reshown": _changed_cards(before.cards(), after.cards())}
            tx.append(NewEvent(tenant, None, Happening(Kind.AGENTS_CHANGED, payload)))


def _changed(before: Specs, after: Specs) -> list[str]:
    """The agents of which anything is shown otherwise now, in a session too."""
    names = dict.fromkeys([*before, *after])
    return [name for name in names if _shown(before.get(name)) != _shown(after.get(name))]


def _changed_cards(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """The agents that a root shows otherwise now, or no more; all of them if their order has changed."""
    old, new = ({each["name"]: each for each in cards} for cards in (before, after))
    if [name for name in old if name in new] != [name for name in new if name in old]:
        return list({**old, **new})
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def _shown(spec: AgentSpec | None) -> Any:
    return None if spec is None else dataclasses.asdict(spec)


def _used_by(tenant: int, names: Collection[str]) -> list[str]:
    """Those that the tenant has sessions of: what an operator does to other tenants' agents is nobody's business."""
    if not names:
        return []
    used = Session.objects.filter(tenant_id=tenant, agent_name__in=names).order_by().values_list("agent_name", flat=True)
    return sorted(set(used.distinct()))
