"""Changes to a session by its clients: title, read and archived flags, model, settings, customizations.

Each is one transaction that ends with an event. A change without effect has an event too, because the client that
dispatched it waits for the echo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.db.models import Max
from django.db.models.functions import Now

from agents_app import exact_json
from agents_app import options as agent_options
from agents_app.spec import AgentSpec
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import clients, dispatches
from sessions_app.core.records import options as option_values
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, agents, quotas, usage_entries
from sessions_app.models import DeferredModel, Form, Measure, OptionValue, Session

Approval = Literal["ask", "auto"]


def _append(tx: journal.Transaction, session: Session, happening: Happening, dispatched: Dispatched | None) -> None:
    tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))


def rename(caller: Caller, session: Session, title: str, *, dispatched: Dispatched | None) -> None:
    """Set the title; it is not replaced by one made from a message later."""
    if faults := content.unstorable(title, ("title",)):
        raise InvalidInput(faults)
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        Session.objects.filter(pk=session.pk).update(title=title, modified_at=Now())
        _append(tx, session, Happening(Kind.TITLE_CHANGED, {"title": title}), dispatched)


def mark_read(caller: Caller, session: Session, *, read: bool, dispatched: Dispatched | None) -> None:
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        newest = Form.objects.filter(session=session).aggregate(last=Max("pk"))["last"]
        Session.objects.filter(pk=session.pk).update(read=read, read_forms=newest or 0)
        _append(tx, session, Happening(Kind.READ_CHANGED, {"read": read}), dispatched)


def archive(caller: Caller, session: Session, *, archived: bool, dispatched: Dispatched | None) -> None:
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        clients.request_attention(session.pk)
        Session.objects.filter(pk=session.pk).update(archived=archived)
        _append(tx, session, Happening(Kind.ARCHIVED_CHANGED, {"archived": archived}), dispatched)


def mark_chat_read(caller: Caller, session: Session, *, read: bool, dispatched: Dispatched | None) -> None:
    """Set the read flag of the session's chat, which is apart from the session's own."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        clients.request_attention(session.pk)
        newest = Form.objects.filter(session=session).aggregate(last=Max("pk"))["last"]
        Session.objects.filter(pk=session.pk).update(chat_read=read, chat_read_forms=newest or 0)
        _append(tx, session, Happening(Kind.CHAT_READ_CHANGED, {"read": read}), dispatched)


def change_draft(caller: Caller, session: Session, draft: Mapping[str, Any] | None, *, dispatched: Dispatched | None) -> None:
    """Store the message that a client is writing, in the form of its protocol; None: there is none any more."""
    if draft is not None and (fault := content.too_large([draft], ("draft",))):
        raise InvalidInput([fault])
    with quotas.check(caller) as quota_check, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        with usage_entries.counting_client_bytes(session) as growth:
            Session.objects.filter(pk=session.pk).update(draft=None if draft is None else exact_json.dumps(dict(draft)))
        quota_check.admit_bytes(growth.bytes)
        _append(tx, session, Happening(Kind.DRAFT_CHANGED, {"draft": None if draft is None else dict(draft)}), dispatched)


# --- model ---------------------------------------------------------------------------------------


def check_model(spec: AgentSpec, model: str, config: Mapping[str, str] | None) -> None:
    if model not in agents.models(spec):
        raise InvalidInput([Fault(("model", "id"), "the agent has no model with this id")])
    if config:
        raise InvalidInput([Fault(("model", "config"), "this model takes no configuration")])


def change_model(
    caller: Caller, session: Session, model: str, config: Mapping[str, str] | None = None, *, dispatched: Dispatched | None
) -> None:
    """Select another model from the next turn on. During a turn the change is stored and takes effect at the turn's end."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        spec = agents.for_turn(caller, session)
        check_model(spec, model, config)
        if clients.request_attention(session.pk) is not None:
            DeferredModel.objects.create(
                tenant_id=session.tenant_id,
                session=session,
                model=model,
                config=None if config is None else exact_json.dumps(dict(config)),
                origin=None if dispatched is None else exact_json.dumps(dispatched.origin),
            )
            return
        set_model(session, spec, model)
        Session.objects.filter(pk=session.pk).update(modified_at=Now())
        _append(tx, session, Happening(Kind.MODEL_CHANGED, model_payload(model, config)), dispatched)


def model_payload(model: str, config: Mapping[str, str] | None) -> dict[str, Any]:
    return {"model": model} if config is None else {"model": model, "config": dict(config)}


def set_model(session: Session, spec: AgentSpec | None, model: str) -> None:
    """Store the selected model. It is ignored if the agent is gone (``spec`` None) or has lost the model."""
    if spec is not None and agents.has_models(spec) and model in agents.models(spec):
        _store_options(session, spec, {agents.MODEL: model})


def _store_options(session: Session, spec: AgentSpec, values: Mapping[str, str]) -> None:
    before = usage_entries.bytes_of_settings(session)
    option_values.store(session, spec, values)
    usage_entries.record(session, Measure.BYTES, usage_entries.bytes_of_settings(session) - before)


# --- settings ------------------------------------------------------------------------------------


def change_settings(
    caller: Caller,
    session: Session,
    *,
    options: Mapping[str, str],
    approval: Approval | None = None,
    replace: bool = False,
    dispatched: Dispatched | None,
) -> None:
    """Set options for the next run and approval for the next call. ``replace``: reset all others except the model."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        spec = agents.for_turn(caller, session)
        check_options(spec, options)
        # Before the options: the end of a turn takes its locks in this order.
        if replace or approval is not None:
            clients.request_attention(session.pk)
        if replace:
            others = OptionValue.objects.filter(session=session).exclude(name__in=list(options))
            (others.exclude(name=agents.MODEL) if agents.has_models(spec) else others).delete()
        _store_options(session, spec, options)
        changed: dict[str, Any] = {"modified_at": Now()}
        if replace or approval is not None:
            changed["approval"] = approval or ""
        Session.objects.filter(pk=session.pk).update(**changed)
        _append(tx, session, Happening(Kind.SETTINGS_CHANGED, settings_payload(spec, options, approval, replace)), dispatched)


def check_options(spec: AgentSpec, values: Mapping[str, str]) -> None:
    faults = [Fault(("config", name), detail) for name, detail in agent_options.faults(spec, values)]
    for name, value in values.items():
        if name == agents.MODEL and agents.has_models(spec):
            faults.append(Fault(("config", name), "The model is not a setting; change it with its own action."))
        elif option_values.is_secret(spec, name) and value == "":
            faults.append(Fault(("config", name), "A secret must not be empty; leave it out."))
    faults += content.unstorable(dict(values), ("config",))
    if faults:
        raise InvalidInput(faults)


def settings_payload(spec: AgentSpec, values: Mapping[str, str], approval: str | None, replace: bool) -> dict[str, Any]:
    """The event's payload, secrets masked."""
    return {"options": option_values.masked(spec, values), "approval": approval, "replace": replace}


# --- customizations ------------------------------------------------------------------------------


def toggle_customization(caller: Caller, session: Session, uri: str, *, enabled: bool, dispatched: Dispatched | None) -> None:
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        stored = Session.objects.values_list("customizations", flat=True).get(pk=session.pk)
        known: list[dict[str, Any]] = [] if stored is None else exact_json.loads(stored)
        if not any(each["customization"]["uri"] == uri for each in known):
            raise NotPossible("the session has no customization with this URI")
        decided = {"enabled": enabled, "enablement": [{"kind": "session", "enabled": enabled}]}
        after = [{**each, **decided} if each["customization"]["uri"] == uri else each for each in known]
        with usage_entries.counting_client_bytes(session):
            clients.store_customizations(session, after)
        id_ = next(clients.id_of(each["customization"]) for each in known if each["customization"]["uri"] == uri)
        _append(tx, session, Happening(Kind.CUSTOMIZATION_TOGGLED, {"uri": uri, "id": id_, **decided}), dispatched)


def decide_customization(
    caller: Caller, session: Session, id_: str, enablement: list[dict[str, Any]], *, dispatched: Dispatched | None
) -> None:
    """Store where a customization is enabled, the most specific decision first; the first one counts.

    ``id_``: the one that its client gave it, else its URI.
    """
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        stored = Session.objects.values_list("customizations", flat=True).get(pk=session.pk)
        known: list[dict[str, Any]] = [] if stored is None else exact_json.loads(stored)
        wanted = next((each for each in known if clients.id_of(each["customization"]) == id_), None)
        if wanted is None:
            raise NotPossible("the session has no customization with this id")
        enabled = bool(enablement[0]["enabled"]) if enablement else True
        decided = {**wanted, "enabled": enabled, "enablement": enablement}
        with usage_entries.counting_client_bytes(session):
            clients.store_customizations(session, [decided if each is wanted else each for each in known])
        payload = {"uri": wanted["customization"]["uri"], "enabled": enabled, "id": id_, "enablement": enablement}
        _append(tx, session, Happening(Kind.CUSTOMIZATION_TOGGLED, payload), dispatched)
