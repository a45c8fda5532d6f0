"""Clients of a session: who takes part, with which tools. One at a time, for now: the newest protocol may have more.

A client whose last connection ends has left, and has a grace in which it alone may come back and
complete its calls (presence.py and sweep.py see to both ends of it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, registry
from agents_app.runtime.messages import ToolSchema
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import dispatches, session_settings
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, quotas
from sessions_app.models import LIVE_STATES, Session, SessionClient, Turn

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Entry:
    """A client and what it brings. A tool is ``{name, title?, description?, parameters?, result_schema?, annotations?, meta?}``;
    a customization as its face has it, with a ``uri``."""

    id: str
    name: str | None
    tools: list[dict[str, Any]]
    customizations: list[dict[str, Any]] | None = None

    def document(self) -> dict[str, Any]:
        """As events and the state show it."""
        shown: dict[str, Any] = {"id": self.id, "tools": self.tools}
        if self.name is not None:
            shown["name"] = self.name
        if self.customizations is not None:
            shown["customizations"] = self.customizations
        return shown


def schemas(tools: Sequence[dict[str, Any]]) -> list[ToolSchema]:
    """A client's tools as a model sees them."""
    return [
        ToolSchema(tool["name"], tool.get("description") or "", tool.get("parameters") or _NO_PARAMETERS, tool.get("title"))
        for tool in tools
    ]


def entry_of(row: SessionClient) -> Entry:
    brought = None if row.customizations is None else exact_json.loads(row.customizations)
    return Entry(row.client, row.name, exact_json.loads(row.tools), brought)


def active(session: int) -> SessionClient | None:
    """The client that takes part now; one in its grace does not."""
    return SessionClient.objects.filter(session_id=session, left_at=None).first()


def check_tools(session: Session | None, agent: str, tools: Sequence[dict[str, Any]]) -> None:
    """R182: one name space for the model; InvalidInput if a name is taken or is none, or the agent takes no tools."""
    faults: list[Fault] = []
    spec = registry.find(agent)
    if tools and spec is not None and not spec.client_tools:
        # No model would ever be offered them.
        faults.append(Fault(("tools",), "this agent takes no client tools"))
    taken: set[str] = set()
    if spec is not None:
        decided = None if session is None else session_settings.settings_of(session)
        taken = {tool.name for tool in spec.tools if not tool.expose or decided is None or tool.name in decided.enabled}
        taken |= set() if decided is None else {tool["name"] for tool in decided.client_tools}
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = tool["name"]
        if content.TOOL_NAME.fullmatch(name) is None:
            faults.append(Fault(("tools", index, "name"), "a tool's name has 1 to 64 characters of A-Z a-z 0-9 _ -"))
        elif name in taken:
            faults.append(Fault(("tools", index, "name"), f"the session has a tool named {name} already"))
        elif name in seen:
            faults.append(Fault(("tools", index, "name"), f"two of the tools are named {name}"))
        seen.add(name)
    faults += content.unstorable(list(tools), ("tools",))
    if not faults and (fault := content.too_large(tools, ("tools",))):
        faults.append(fault)
    if faults:
        raise InvalidInput(faults)


def put(session: Session, entry: Entry) -> None:
    """The client's row as it is now; inside a transaction that has the session locked or is making it.

    InvalidInput if its customizations are too large in all: every client of the session is shown them.
    """
    if fault := content.too_large(entry.customizations or [], ("customizations",)):
        raise InvalidInput([fault])
    SessionClient.objects.update_or_create(
        session=session,
        client=entry.id,
        defaults={
            "name": entry.name,
            "tools": exact_json.dumps(entry.tools),
            "customizations": None if entry.customizations is None else exact_json.dumps(entry.customizations),
            "left_at": None,
        },
        create_defaults={
            "tenant_id": session.tenant_id,
            "name": entry.name,
            "tools": exact_json.dumps(entry.tools),
            "customizations": None if entry.customizations is None else exact_json.dumps(entry.customizations),
            "joined_at": timezone.now(),
        },
    )


def request_attention(session: int) -> Turn | None:
    """Make the run of the session's live turn look; the session is locked. Tell its worker after the transaction."""
    turn = Turn.objects.select_for_update(no_key=True).filter(session_id=session, state__in=LIVE_STATES).first()
    if turn is not None and not turn.attention:
        Turn.objects.filter(pk=turn.pk).update(attention=True)
    return turn


def join(caller: Caller, session: Session, entry: Entry, *, dispatched: Dispatched | None) -> None:
    """The client takes part, or what it brings is changed."""
    with quotas.check(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        others = SessionClient.objects.filter(session=session).exclude(client=entry.id)
        if others.exists():
            raise NotPossible("another client is active in this session")
        check_tools(session, session.agent_name, entry.tools)
        before = SessionClient.objects.filter(session=session, client=entry.id).first()
        with quotas.counting_client_bytes(session) as growth:
            put(session, entry)
            customizations = _update_customizations(session, None if before is None else before.client, entry)
        asking.admit_bytes(growth.bytes)
        request_attention(session.pk)
        happening = dispatches.with_origin(Happening(Kind.CLIENT_JOINED, {"client": entry.document()}), dispatched)
        for each in (happening, *customizations):
            tx.append(NewEvent(session.tenant_id, session.pk, each))


def leave(caller: Caller, session: Session, client: str, *, dispatched: Dispatched | None) -> None:
    """The client takes part no longer. Its open calls are its own until its grace is over.

    If nobody takes part, nothing changes.
    """
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        there = SessionClient.objects.filter(session=session, left_at=None).first()
        if there is not None and there.client != client:
            raise NotPossible("another client is active in this session")
        record_leaving(tx, session, there, "released", dispatched)


def record_leaving(
    tx: journal.Transaction, session: Session, there: SessionClient | None, cause: str, dispatched: Dispatched | None = None
) -> None:
    """Write that a client has left; the session is locked."""
    happening = Happening(Kind.CLIENT_LEFT, {"client": None if there is None else there.client, "cause": cause})
    if there is not None:
        SessionClient.objects.filter(pk=there.pk).update(left_at=Now())
        request_attention(session.pk)
    tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))
    if there is not None:
        with quotas.counting_client_bytes(session):
            customizations = _update_customizations(session, there.client, None)
        for each in customizations:
            tx.append(NewEvent(session.tenant_id, session.pk, each))


def change_tools(caller: Caller, session: Session, tools: list[dict[str, Any]], *, dispatched: Dispatched) -> None:
    """Other tools of the client that dispatches; they count from the next model call."""
    with quotas.check(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        there = SessionClient.objects.filter(session=session, client=dispatched.client, left_at=None).first()
        if there is None:
            raise NotPossible("you are not the active client of this session")
        check_tools(session, session.agent_name, tools)
        with quotas.counting_client_bytes(session) as growth:
            SessionClient.objects.filter(pk=there.pk).update(tools=exact_json.dumps(tools))
        asking.admit_bytes(growth.bytes)
        request_attention(session.pk)
        happening = Happening(Kind.CLIENT_TOOLS_CHANGED, {"client": there.client, "tools": tools})
        tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))


def merged_customizations(
    before: Sequence[dict[str, Any]], client: str, brought: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The session's customizations once this client brings these: its others go, what is there keeps its switch."""
    enabled = {each["customization"]["uri"]: each["enabled"] for each in before if each.get("client") == client}
    kept = [each for each in before if each.get("client") != client]
    taken = {each["customization"]["uri"] for each in kept}
    return kept + [
        {"customization": each, "enabled": enabled.get(each["uri"], True), "client": client, "status": "loaded"}
        for each in brought
        if each["uri"] not in taken
    ]


def _update_customizations(session: Session, client: str | None, entry: Entry | None) -> list[Happening]:
    """Adopt what a client brings and let go what it brought; what there is to tell if that changes the session's list."""
    known = Session.objects.values_list("customizations", flat=True).get(pk=session.pk)
    before: list[dict[str, Any]] = [] if known is None else exact_json.loads(known)
    owner = entry.id if entry is not None else client
    after = (
        before
        if owner is None
        else merged_customizations(before, owner, (entry.customizations if entry is not None else None) or [])
    )
    if after == before:
        return []
    store_customizations(session, after)
    return [Happening(Kind.CUSTOMIZATIONS_CHANGED, {"customizations": after})]


def store_customizations(session: Session, after: Sequence[dict[str, Any]]) -> None:
    Session.objects.filter(pk=session.pk).update(customizations=exact_json.dumps(list(after)) if after else None)
