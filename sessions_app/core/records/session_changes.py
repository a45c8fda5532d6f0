"""What clients change about a session between and beside its turns: title, flags, model, settings.

Each in one transaction that ends with its event; a change that changes nothing has its event too, because
whoever dispatched it waits for its echo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.db.models import Max
from django.db.models.functions import Now

from agents_app import exact_json
from agents_app import options as agent_options
from agents_app.spec import AgentSpec
from sessions_app.core.base import content, sealing
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import clients, dispatches, options
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, agents, quotas
from sessions_app.models import DeferredModel, Form, Measure, OptionValue, Session

Approval = Literal["ask", "auto"]


def _append(tx: journal.Transaction, session: Session, happening: Happening, dispatched: Dispatched | None) -> None:
    tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))


def rename(caller: Caller, session: Session, title: str, *, dispatched: Dispatched | None) -> None:
    """A title that a client has set is not overwritten by one that is made from a message."""
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
        Session.objects.filter(pk=session.pk).update(archived=archived)
        _append(tx, session, Happening(Kind.ARCHIVED_CHANGED, {"archived": archived}), dispatched)


# --- model ---------------------------------------------------------------------------------------


def check_model(spec: AgentSpec, model: str, config: Mapping[str, str] | None) -> None:
    if model not in agents.models(spec):
        raise InvalidInput([Fault(("model", "id"), "the agent has no model with this id")])
    if config:
        raise InvalidInput([Fault(("model", "config"), "this model takes no configuration")])


def change_model(
    caller: Caller, session: Session, model: str, config: Mapping[str, str] | None = None, *, dispatched: Dispatched | None
) -> None:
    """Another model, from the next turn on. While a turn lives the change is kept, and told at its end."""
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
    """``spec`` None, or without the model any more: the operator has changed it, and the choice has no effect."""
    if spec is not None and agents.has_models(spec) and model in agents.models(spec):
        _store_options(session, spec, {agents.MODEL: model})


def _store_options(session: Session, spec: AgentSpec, values: Mapping[str, str]) -> None:
    before = quotas.bytes_of_settings(session)
    options.store(session, spec, values)
    quotas.record(session, Measure.BYTES, quotas.bytes_of_settings(session) - before)


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
    """Options for the next run, approval for the next call. ``replace``: what is not given is unset, the model excepted."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        spec = agents.for_turn(caller, session)
        check_options(spec, options)
        # Before the options: the end of a turn takes its locks in this order.
        if replace or approval is not None:
            clients.request_attention(session.pk)
        if replace:
            gone = OptionValue.objects.filter(session=session).exclude(name__in=list(options))
            (gone.exclude(name=agents.MODEL) if agents.has_models(spec) else gone).delete()
        _store_options(session, spec, options)
        changed: dict[str, Any] = {"modified_at": Now()}
        if replace or approval is not None:
            changed["approval"] = approval or ""
        Session.objects.filter(pk=session.pk).update(**changed)
        _append(tx, session, Happening(Kind.SETTINGS_CHANGED, settings_payload(spec, options, approval, replace)), dispatched)


def check_options(spec: AgentSpec, given: Mapping[str, str]) -> None:
    faults = [Fault(("config", name), detail) for name, detail in agent_options.faults(spec, given)]
    for name, value in given.items():
        option = spec.option(name)
        if name == agents.MODEL and agents.has_models(spec):
            faults.append(Fault(("config", name), "The model is chosen by itself, not as a setting."))
        elif option is not None and option.type == "secret" and value == "":
            faults.append(Fault(("config", name), "A secret is not empty: leave it out."))
    faults += content.unstorable(dict(given), ("config",))
    if faults:
        raise InvalidInput(faults)


def settings_payload(spec: AgentSpec, given: Mapping[str, str], approval: str | None, replace: bool) -> dict[str, Any]:
    """What the event says; never a secret."""
    shown = {
        name: sealing.MASK if (option := spec.option(name)) is not None and option.type == "secret" else value
        for name, value in given.items()
    }
    return {"options": shown, "approval": approval, "replace": replace}


# --- customizations ------------------------------------------------------------------------------


def toggle_customization(caller: Caller, session: Session, uri: str, *, enabled: bool, dispatched: Dispatched | None) -> None:
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        stored = Session.objects.values_list("customizations", flat=True).get(pk=session.pk)
        known: list[dict[str, Any]] = [] if stored is None else exact_json.loads(stored)
        if not any(each["customization"]["uri"] == uri for each in known):
            raise NotPossible("the session has no customization with this URI")
        after = [{**each, "enabled": enabled} if each["customization"]["uri"] == uri else each for each in known]
        with quotas.counting_client_bytes(session):
            clients.store_customizations(session, after)
        _append(tx, session, Happening(Kind.CUSTOMIZATION_TOGGLED, {"uri": uri, "enabled": enabled}), dispatched)
