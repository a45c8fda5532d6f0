"""The agents that AHP clients are shown: one published listing for the whole server, and the one that each tenant has seen.

A process loads its agents once, so two processes may have different agents: during an upgrade, or permanently after a
mistake. Clients must be shown the same agents by every process. So each process publishes its agents once, at its start,
and every process shows the listing that was published last. A process with connections of a tenant moves that tenant to
the new listing, in the transaction that appends the event.
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
from agents_app.tools.source import READ_ONLY
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
_ABANDONED_AFTER = timedelta(seconds=60)
"""If no process has served the published listing for this time, another process publishes its own again."""


@dataclass(slots=True)
class _Process:
    """The agents that this process has published.

    ``abandoned_after`` doubles with each further publication, so that two processes with different agents do not replace each
    other's listing forever.
    """

    published: Specs | None = None
    abandoned_after: timedelta = _ABANDONED_AFTER


_process = _Process()


@dataclass(frozen=True, slots=True)
class _OwnListing:
    specs: Specs
    document: str
    digest: str


_own_now: _OwnListing | None = None


def _own() -> _OwnListing:
    """This process's agents as clients are shown them."""
    global _own_now
    specs, found = registry.agents(), _own_now
    if found is None or found.specs is not specs:
        document = exact_json.dumps([_document(spec) for spec in specs.values()])
        found = _own_now = _OwnListing(specs, document, hashlib.sha256(document.encode()).hexdigest())
    return found


# --- the document of an agent --------------------------------------------------------------------


def _document(spec: AgentSpec) -> dict[str, Any]:
    """The public parts of an agent: no key, no header, no default of a secret option."""
    shown = {name: getattr(spec, name) for name in _SHOWN}
    shown["options"] = [
        {name: "" if name == "default" and option.type == "secret" else getattr(option, name) for name in _SHOWN_OF_OPTION}
        for option in spec.options
    ]
    shown["tools"] = [_tool(tool) for tool in spec.exposed_tools]
    return shown


def _tool(tool: ToolSpec) -> dict[str, Any]:
    """Includes ``source`` for read-only builtin tools, which clients may know; the other sources name the operator's code."""
    shown = {name: getattr(tool, name) for name in _SHOWN_OF_TOOL}
    source = {"source": tool.source} if tool.source in READ_ONLY else {}
    return {**shown, "parameters": dict(tool.parameters), **source}


def _spec(document: Mapping[str, Any]) -> AgentSpec:
    """An agent from its document, for display only. Members that a newer release added are ignored."""
    known = {name: document[name] for name in _SHOWN}
    known["images"] = tuple(known["images"])
    options = [{name: option[name] for name in _SHOWN_OF_OPTION} for option in document["options"]]
    # The previous release wrote no source.
    tools = [{**{name: tool[name] for name in _SHOWN_OF_TOOL}, "source": tool.get("source", "")} for tool in document["tools"]]
    return AgentSpec(
        **known,
        options=tuple(OptionSpec(**{**option, "options": tuple(option["options"])}) for option in options),
        tools=tuple(ToolSpec(**tool) for tool in tools),
    )


@lru_cache(maxsize=16)
def _specs_of(digest: str) -> Specs:
    return _read(AgentListing.objects.values_list("document", flat=True).get(digest=digest))


def _read(document: str) -> Specs:
    return MappingProxyType({each["name"]: _spec(each) for each in exact_json.loads(document)})


def card(spec: AgentSpec) -> dict[str, Any]:
    """The summary of an agent in AHP's root state."""
    return {
        "name": spec.name,
        "title": spec.title or spec.name,
        "description": spec.description or "",
        "models": list(agents.models(spec)),
        "context_tokens": spec.context_tokens,
        "images": bool(spec.images),
    }


# --- the listing of a tenant ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """The agents of a listing. ``allowed``: the names that the tenant may use; None: all."""

    specs: Specs
    allowed: Collection[str] | None

    def cards(self) -> list[dict[str, Any]]:
        return [card(spec) for spec in self.specs.values() if self.allowed is None or spec.name in self.allowed]


def of(tenant: int) -> Listing:
    """The listing that the tenant is shown now; read it in the same snapshot as the counter."""
    row = ShownListing.objects.filter(pk=tenant).values_list("listing__digest", "agents").first()
    if row is None:
        # The tenant was never shown a listing, so this process's agents contradict nothing.
        return Listing(registry.agents(), Tenant.objects.values_list("allowed_agents", flat=True).get(pk=tenant))
    return Listing(_specs_of(row[0]), row[1])


def visible(cards: Iterable[Mapping[str, Any]], key_agents: Collection[str] | None) -> list[Mapping[str, Any]]:
    """The cards that a key with these allowed agents may see."""
    return [each for each in cards if key_agents is None or each["name"] in key_agents]


def read_root(caller: Caller) -> tuple[int, int, list[Mapping[str, Any]]]:
    """The tenant's counter, the number of sessions and the agents that the caller sees, in the caller's snapshot."""
    seq, sessions = _counter_and_sessions(caller)
    return seq, sessions, visible(of(caller.tenant).cards(), caller.key_agents)


def counter_and_sessions(caller: Caller) -> tuple[int, int]:
    """The tenant's counter and the number of sessions that the caller sees, in one snapshot."""
    with journal.snapshot():
        found = _counter_and_sessions(caller)
    journal.barrier()
    return found


def _counter_and_sessions(caller: Caller) -> tuple[int, int]:
    seq, sessions = journal.counter_and_sessions(caller.tenant)
    return seq, sessions if caller.sight.is_whole else access.visible(caller).count()


def events_after(
    caller: Caller, sessions: Collection[int], after: int, limit: int, most_bytes: int
) -> tuple[SessionRead, int | None]:
    """``journal.read_several``, and for a limited caller the number of sessions that it sees, in the same snapshot."""
    if caller.sight.is_whole:
        return journal.read_several(caller.tenant, sessions, after, limit, most_bytes), None
    with journal.snapshot():
        read = journal.read_several(caller.tenant, sessions, after, limit, most_bytes)
        return read, access.visible(caller).count()


# --- publishing ----------------------------------------------------------------------------------


def _published() -> AgentListing:
    """The listing that was published last. The first call of a process publishes its own agents."""
    own = _own()
    newest = _newest()
    if newest is None or (newest.digest != own.digest and (_process.published is not own.specs or _is_abandoned(newest))):
        if _process.published is own.specs and newest is not None:
            log.warning(
                "agents_republished: no process has published its agents for %d s; publishing ours",
                _process.abandoned_after.seconds,
            )
            _process.abandoned_after *= 2
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
    """Whether no process serves this listing any more, as when a process of an old release started last during an upgrade."""
    return AgentListing.objects.filter(pk=listing.pk, seen_at__lt=Now() - _process.abandoned_after).exists()


def renew() -> None:
    """Record that this process still serves its agents."""
    AgentListing.objects.filter(digest=_own().digest).update(seen_at=Now())


def outdated(tenants: Collection[int]) -> list[int]:
    """The tenants among these that are not shown the published listing and their allowed agents."""
    listing = _published()
    shown = {
        pk: (listed, allowed)
        for pk, listed, allowed in ShownListing.objects.filter(pk__in=tenants).values_list("pk", "listing", "agents")
    }
    wanted = Tenant.objects.filter(pk__in=tenants).values_list("pk", "allowed_agents")
    return [pk for pk, allowed in wanted if shown.get(pk) != (listing.pk, allowed)]


def show(tenant: int) -> None:
    """Show the tenant the published listing; append an event if that changes anything for it."""
    if not outdated([tenant]):
        return
    if not ShownListing.objects.filter(pk=tenant).exists():
        allowed = Tenant.objects.values_list("allowed_agents", flat=True).get(pk=tenant)
        first = ShownListing(tenant_id=tenant, listing=_published(), agents=allowed)
        ShownListing.objects.bulk_create([first], ignore_conflicts=True)
        return
    with journal.transaction() as tx:
        # Without select_related: for a row that was just changed, the join with its old listing would find nothing.
        row = ShownListing.objects.select_for_update(no_key=True).get(pk=tenant)
        listing = _published()
        allowed = Tenant.objects.values_list("allowed_agents", flat=True).get(pk=tenant)
        before, after = Listing(_specs_of(row.listing.digest), row.agents), Listing(_specs_of(listing.digest), allowed)
        ShownListing.objects.filter(pk=tenant).update(listing=listing, agents=allowed)
        changed = _used_by(tenant, _changed(before.specs, after.specs))
        if changed or before.cards() != after.cards():
            payload = {"agents": after.cards(), "changed": changed, "reshown": _changed_cards(before.cards(), after.cards())}
            tx.append(NewEvent(tenant, None, Happening(Kind.AGENTS_CHANGED, payload)))


def _changed(before: Specs, after: Specs) -> list[str]:
    """The agents whose documents differ."""
    names = dict.fromkeys([*before, *after])
    return [name for name in names if _shown(before.get(name)) != _shown(after.get(name))]


def _changed_cards(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """The agents whose cards differ or are gone; all agents if their order has changed."""
    old, new = ({each["name"]: each for each in cards} for cards in (before, after))
    if [name for name in old if name in new] != [name for name in new if name in old]:
        return list({**old, **new})
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def _shown(spec: AgentSpec | None) -> Any:
    return None if spec is None else dataclasses.asdict(spec)


def _used_by(tenant: int, names: Collection[str]) -> list[str]:
    """Those of the agents that the tenant has sessions with; changes of other agents stay hidden from the tenant."""
    if not names:
        return []
    used = Session.objects.filter(tenant_id=tenant, agent_name__in=names).order_by().values_list("agent_name", flat=True)
    return sorted(set(used.distinct()))
