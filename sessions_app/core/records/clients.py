"""The active clients of a session and their tools.

Versions of AHP that know of one active client show the one of them that joined first. A client of 0.1 leaves when its last
connection ends; for a grace period it alone may come back and complete its calls. Others leave at the end of that period.
sessions/connections.py and worker/sweep.py handle both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from sessions_app.core.tenancy import access, quotas, usage_entries
from sessions_app.models import LIVE_STATES, Session, SessionClient, Turn

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Entry:
    """A client, its tools and its customizations.

    A tool is ``{name, title?, description?, parameters?, result_schema?, annotations?, meta?}``; a customization has the form of
    its protocol, with a ``uri``.
    """

    id: str
    name: str | None
    tools: list[dict[str, Any]]
    customizations: list[dict[str, Any]] | None = None

    def document(self) -> dict[str, Any]:
        """The client as it appears in events and in the session's state."""
        shown: dict[str, Any] = {"id": self.id, "tools": self.tools}
        if self.name is not None:
            shown["name"] = self.name
        if self.customizations is not None:
            shown["customizations"] = self.customizations
        return shown


def schemas(tools: Sequence[dict[str, Any]]) -> list[ToolSchema]:
    """A client's tools as declared to a model."""
    return [
        ToolSchema(tool["name"], tool.get("description") or "", tool.get("parameters") or _NO_PARAMETERS, tool.get("title"))
        for tool in tools
    ]


def entry_of(row: SessionClient) -> Entry:
    customizations = None if row.customizations is None else exact_json.loads(row.customizations)
    return Entry(row.client, row.name, exact_json.loads(row.tools), customizations)


def active(session: int) -> SessionClient | None:
    """The active client that joined first."""
    return next(iter(active_ones(session)), None)


def active_ones(session: int) -> list[SessionClient]:
    """The active clients, in the order in which they joined; a client in its grace period is not active."""
    return list(SessionClient.objects.filter(session_id=session, left_at=None).order_by("joined_at", "pk"))


def is_active(session: int, client: str) -> bool:
    return SessionClient.objects.filter(session_id=session, client=client, left_at=None).exists()


def check_tools(session: Session | None, agent: str, tools: Sequence[dict[str, Any]]) -> None:
    """R182: all tools share one name space. InvalidInput if a name is taken or malformed, or the agent takes no client tools."""
    faults: list[Fault] = []
    spec = registry.find(agent)
    if tools and spec is not None and not spec.client_tools:
        # No model would ever see them.
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


def put(session: Session, entry: Entry, *, stays: bool = False) -> None:
    """Store the client's row, in a transaction that has locked the session or creates it.

    InvalidInput if its customizations are too large in total: every client of the session receives them.
    """
    if fault := content.too_large(entry.customizations or [], ("customizations",)):
        raise InvalidInput([fault])
    stored = {
        "name": entry.name,
        "tools": exact_json.dumps(entry.tools),
        "customizations": None if entry.customizations is None else exact_json.dumps(entry.customizations),
        "stays": stays,
        "away_since": None,
    }
    # A client that left and comes back is the last one to have joined.
    SessionClient.objects.filter(session=session, client=entry.id, left_at__isnull=False).update(joined_at=timezone.now())
    SessionClient.objects.update_or_create(
        session=session,
        client=entry.id,
        defaults={**stored, "left_at": None},
        create_defaults={**stored, "tenant_id": session.tenant_id, "joined_at": timezone.now()},
    )


def request_attention(session: int) -> Turn | None:
    """Mark the session's live turn so that its run re-reads clients and messages; the session is locked.

    Returns the turn; notify its worker after the transaction.
    """
    turn = Turn.objects.select_for_update(no_key=True).filter(session_id=session, state__in=LIVE_STATES).first()
    if turn is not None and not turn.attention:
        Turn.objects.filter(pk=turn.pk).update(attention=True)
    return turn


def join(caller: Caller, session: Session, entry: Entry, *, beside_others: bool = False, dispatched: Dispatched | None) -> None:
    """Make the client active in the session, or change its tools and customizations.

    ``beside_others``: other clients may be active too, and it stays active for a grace period after its last connection. Of tools
    with the same name, that of the turn's starter counts, then that of the client that joined first.
    """
    with quotas.check(caller) as quota_check, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        others = SessionClient.objects.filter(session=session).exclude(client=entry.id)
        if not beside_others and others.exists():
            raise NotPossible("another client is active in this session")
        check_tools(session, session.agent_name, entry.tools)
        before = SessionClient.objects.filter(session=session, client=entry.id).first()
        with usage_entries.counting_client_bytes(session) as growth:
            put(session, entry, stays=beside_others)
            customizations = _update_customizations(session, None if before is None else before.client, entry)
        quota_check.admit_bytes(growth.bytes)
        request_attention(session.pk)
        payload = {"client": entry.document(), "shown": active_ones(session.pk)[0].client}
        happening = dispatches.with_origin(Happening(Kind.CLIENT_JOINED, payload), dispatched)
        for each in (happening, *customizations):
            tx.append(NewEvent(session.tenant_id, session.pk, each))


def leave(caller: Caller, session: Session, client: str, *, dispatched: Dispatched | None) -> None:
    """Let the client leave the session. Its open calls stay its own until its grace period ends.

    Without an active client nothing changes.
    """
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        rows = active_ones(session.pk)
        row = next((each for each in rows if each.client == client), None)
        if rows and row is None:
            raise NotPossible("another client is active in this session")
        record_leaving(tx, session, row, "released", dispatched)


def record_leaving(
    tx: journal.Transaction, session: Session, row: SessionClient | None, cause: str, dispatched: Dispatched | None = None
) -> None:
    """Store that a client has left, with its event; the session is locked."""
    before = active_ones(session.pk)
    after = [each for each in before if row is None or each.pk != row.pk]
    payload = {
        "client": None if row is None else row.client,
        "cause": cause,
        "shown_before": before[0].client if before else None,
        "shown_after": entry_of(after[0]).document() if after else None,
    }
    happening = Happening(Kind.CLIENT_LEFT, payload)
    if row is not None:
        SessionClient.objects.filter(pk=row.pk).update(left_at=Now())
        request_attention(session.pk)
    tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))
    if row is not None:
        with usage_entries.counting_client_bytes(session):
            customizations = _update_customizations(session, row.client, None)
        for each in customizations:
            tx.append(NewEvent(session.tenant_id, session.pk, each))


def change_tools(caller: Caller, session: Session, tools: list[dict[str, Any]], *, dispatched: Dispatched) -> None:
    """Replace the tools of the active client, which dispatched the change; they apply from the next model call on."""
    with quotas.check(caller) as quota_check, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        row = SessionClient.objects.filter(session=session, client=dispatched.client, left_at=None).first()
        if row is None:
            raise NotPossible("you are not the active client of this session")
        check_tools(session, session.agent_name, tools)
        with usage_entries.counting_client_bytes(session) as growth:
            SessionClient.objects.filter(pk=row.pk).update(tools=exact_json.dumps(tools))
        quota_check.admit_bytes(growth.bytes)
        request_attention(session.pk)
        entry = replace(entry_of(row), tools=tools).document()
        happening = Happening(Kind.CLIENT_TOOLS_CHANGED, {"client": row.client, "tools": tools, "entry": entry})
        tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))


def id_of(customization: Mapping[str, Any]) -> str:
    """The id that its client gave it; its URI if there is none."""
    return str(customization.get("id") or customization["uri"])


def merged_customizations(
    before: Sequence[dict[str, Any]], client: str, customizations: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The session's customizations with this client's replaced by these; known ones stay enabled or disabled."""
    mine = [each for each in before if each.get("client") == client]
    enabled = {each["customization"]["uri"]: each["enabled"] for each in mine}
    decided = {each["customization"]["uri"]: {"enablement": each["enablement"]} for each in mine if "enablement" in each}
    others = [each for each in before if each.get("client") != client]
    taken = {each["customization"]["uri"] for each in others}
    return others + [
        {
            "customization": each,
            "enabled": enabled.get(each["uri"], True),
            "client": client,
            "status": "loaded",
            **decided.get(each["uri"], {}),
        }
        for each in customizations
        if each["uri"] not in taken
    ]


def _update_customizations(session: Session, client: str | None, entry: Entry | None) -> list[Happening]:
    """Replace a client's customizations by those of ``entry`` (None: remove them); the event if the list changes."""
    stored = Session.objects.values_list("customizations", flat=True).get(pk=session.pk)
    before: list[dict[str, Any]] = [] if stored is None else exact_json.loads(stored)
    owner = entry.id if entry is not None else client
    customizations = (entry.customizations if entry is not None else None) or []
    after = before if owner is None else merged_customizations(before, owner, customizations)
    if after == before:
        return []
    store_customizations(session, after)
    return [Happening(Kind.CUSTOMIZATIONS_CHANGED, {"customizations": after})]


def store_customizations(session: Session, after: Sequence[dict[str, Any]]) -> None:
    Session.objects.filter(pk=session.pk).update(customizations=exact_json.dumps(list(after)) if after else None)
