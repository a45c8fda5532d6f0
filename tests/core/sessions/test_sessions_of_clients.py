"""Sessions as clients of AHP make, find, list and change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents_app import registry
from agents_app.spec import AgentSpec, OptionSpec
from sessions_app.core.base.errors import AddressTaken, AgentUnknown, DispatchedBefore, InvalidInput, NotPossible, SessionNotFound
from sessions_app.core.records import addresses, clients, dispatches, session_changes
from sessions_app.core.sessions import deleting, entries, listing
from sessions_app.models import DispatchRecord, OptionValue
from tests.core.conftest import World
from tests.core.dispatching import action, events, of_tenant
from tests.core.threads import at_once, errors_of
from tests.sample_tenants import make_session_of_client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def with_models(agents: Callable[..., AgentSpec]) -> Iterator[AgentSpec]:
    spec = agents(
        options=(
            OptionSpec("select", "model", default="small", options=("small", "large")),
            OptionSpec("secret", "key", default="sk-default"),
            OptionSpec("text", "tone", default="plainly"),
        ),
    )
    with registry.use([replace(spec, model="openai-chat:{model}")]):
        yield spec


def make(world: World, uri: str = "sailor:/one", **given: Any) -> Any:
    return make_session_of_client(world.caller, uri=uri, agent=given.pop("agent", "sailor"), **given)


@pytest.mark.rule("R110")
def test_a_session_is_found_by_the_uri_its_client_chose(alice: World, bob: World) -> None:
    session = make(alice, "sailor:/my%20boat?x=1")
    assert addresses.find(alice.caller, "sailor:/my%20boat?x=1") == session
    assert addresses.of(session) == "sailor:/my%20boat?x=1"
    with pytest.raises(SessionNotFound):
        addresses.find(bob.caller, "sailor:/my%20boat?x=1")
    with pytest.raises(SessionNotFound):
        addresses.find(alice.caller, addresses.default("sailor", session.public_id))
    created = events(session, "session_created")
    assert created == [
        ("session_created", {"session": session.public_id, "agent": "sailor", "uri": "sailor:/my%20boat?x=1"}),
    ]
    assert of_tenant(alice.caller.tenant, "active_sessions_changed") == [{"count": 1}]


@pytest.mark.rule("R387")
def test_a_session_made_over_aap_has_a_uri_of_its_agent_and_id(alice: World, bob: World) -> None:
    session = alice.session()
    uri = f"sailor:/{session.public_id}"
    assert addresses.of(session) == uri
    assert addresses.find(alice.caller, uri) == session
    with pytest.raises(SessionNotFound):
        addresses.find(bob.caller, uri)
    with pytest.raises(SessionNotFound):
        addresses.find(alice.caller, f"other:/{session.public_id}")
    with pytest.raises(AddressTaken):
        make(alice, uri)


@pytest.mark.rule("R382")
def test_a_uri_is_taken_once_a_tenant_and_free_again_after_deletion(alice: World, bob: World) -> None:
    first = make(alice)
    make(bob)
    with pytest.raises(AddressTaken):
        make(alice)
    deleting.delete(alice.caller, first)
    named = {"session": first.public_id, "agent": "sailor", "uri": "sailor:/one", "family": "0.1"}
    assert events(first, "session_deleted") == [("session_deleted", named)]
    again = make(alice)
    assert addresses.find(alice.caller, "sailor:/one") == again
    seen = of_tenant(alice.caller.tenant, "active_sessions_changed")
    assert seen == [{"count": 1}, {"count": 0}, {"count": 1}]
    assert addresses.any_created_after([again.pk], 1)
    assert not addresses.any_created_after([again.pk], 1_000_000)


def test_of_two_sessions_made_at_once_under_one_uri_one_is_made(alice: World) -> None:
    assert errors_of(at_once(*[lambda: make(alice)] * 2)) == ["AddressTaken", "done"]
    assert len(entries.listed(alice.caller)) == 1


@pytest.mark.rule("R116")
def test_model_settings_and_client_are_there_from_the_start(alice: World, with_models: AgentSpec) -> None:
    entry = clients.Entry("c1", "Editor", [{"name": "open_file"}], [{"uri": "file:///p", "displayName": "P"}])
    session = make(alice, model="large", options={"tone": "like a pirate", "key": "sk-mine"}, approval="auto", client=entry)
    (summary,) = entries.listed(alice.caller)
    assert (summary.model, summary.state, summary.title, summary.uri) == ("large", "idle", "", "sailor:/one")
    there = clients.active(session.pk)
    assert there is not None
    assert clients.entry_of(there) == entry
    assert session.approval == "auto"
    assert "sk-mine" not in str(events(session))
    assert listing.facts(session).options == {"tone": "like a pirate", "key": "***", "model": "large"}
    assert {ref["name"] for ref in listing.facts(session).tool_refs or []} == {"add_one", "blow_up", "block"}


@pytest.mark.rule("R110")
def test_a_creation_with_a_fault_creates_no_session(alice: World, with_models: AgentSpec) -> None:
    with pytest.raises(AgentUnknown):
        make(alice, agent="nobody")
    for wrong in ({"model": "huge"}, {"options": {"tune": "x"}}, {"options": {"model": "small"}}):
        with pytest.raises(InvalidInput):
            make(alice, **wrong)
    with pytest.raises(InvalidInput):
        make(alice, client=clients.Entry("c1", None, [{"name": "add_one"}]))
    assert entries.listed(alice.caller) == []


@pytest.mark.rule("R118")
def test_the_list_has_the_last_used_first_and_archived_ones_last(alice: World, bob: World) -> None:
    old, kept, newest = (make(alice, f"sailor:/{name}") for name in ("old", "kept", "newest"))
    make(bob, "sailor:/bob")
    session_changes.archive(alice.caller, newest, archived=True, dispatched=action())
    session_changes.rename(alice.caller, old, "Old one", dispatched=action())
    listed = entries.listed(alice.caller)
    assert [each.uri for each in listed] == ["sailor:/old", "sailor:/kept", "sailor:/newest"]
    assert [each.archived for each in listed] == [False, False, True]
    assert listed[0].title == "Old one"
    assert listed[0].modified_at > listed[0].created_at
    assert entries.of(alice.caller.tenant, [kept.pk])[kept.pk] == listed[1]
    assert len(entries.listed(alice.caller, limit=2)) == 2


@pytest.mark.rule("R82")
def test_an_accepted_action_is_in_its_event_as_it_was_sent(alice: World) -> None:
    session = make(alice)
    sent = action("session/titleChanged", title="Hi", _meta={"b": 1, "a": 2})
    session_changes.rename(alice.caller, session, "Hi", dispatched=sent)
    session_changes.mark_read(alice.caller, session, read=True, dispatched=action())
    assert of_tenant(alice.caller.tenant, "title_changed") == [
        {
            "title": "Hi",
            "origin": {
                "client": "c1",
                "seq": sent.seq,
                "protocol": "ahp/0.1",
                "said": {"type": "session/titleChanged", "title": "Hi", "_meta": {"b": 1, "a": 2}},
            },
        }
    ]
    assert entries.of(alice.caller.tenant, [session.pk])[session.pk].read


@pytest.mark.rule("R83")
def test_a_refusal_is_an_event_for_its_connection(alice: World) -> None:
    session = make(alice)
    sent = action("session/turnCancelled", connection="w7")
    dispatches.refuse(alice.caller, sent, "no turn is active")
    (refused,) = of_tenant(alice.caller.tenant, "dispatch_refused")
    assert (refused["connection"], refused["reason"]) == ("w7", "no turn is active")
    assert refused["origin"]["said"] == {"type": "session/turnCancelled"}
    assert events(session, "dispatch_refused") == []


def test_an_action_sent_again_after_a_reconnect_is_handled_once(alice: World) -> None:
    session = make(alice)
    sent = action("session/titleChanged", title="A")
    session_changes.rename(alice.caller, session, "A", dispatched=sent)
    again = dispatches.Dispatched(sent.client, "w2", sent.life, sent.seq, sent.protocol, sent.action)
    with pytest.raises(DispatchedBefore):
        session_changes.rename(alice.caller, session, "A", dispatched=again)
    with pytest.raises(DispatchedBefore):
        dispatches.refuse(alice.caller, again, "no")
    assert len(events(session, "title_changed")) == 1
    # The same number over one connection, in another life or with other words is another action.
    session_changes.rename(alice.caller, session, "A", dispatched=sent)
    other = dispatches.Dispatched(sent.client, "w2", "next life", sent.seq, sent.protocol, sent.action)
    session_changes.rename(alice.caller, session, "A", dispatched=other)
    words = dispatches.Dispatched(sent.client, "w2", sent.life, sent.seq, sent.protocol, {**sent.action, "title": "B"})
    session_changes.rename(alice.caller, session, "B", dispatched=words)
    assert len(events(session, "title_changed")) == 4


def test_a_failed_action_leaves_no_dispatch_record(alice: World) -> None:
    session = make(alice)
    with pytest.raises(InvalidInput):
        session_changes.change_settings(alice.caller, session, options={"tune": "x"}, dispatched=action())
    assert not DispatchRecord.objects.exists()


@pytest.mark.rule("R222")
def test_a_model_change_takes_effect_at_once_while_no_turn_runs(alice: World, with_models: AgentSpec) -> None:
    session = make(alice)
    session_changes.change_model(alice.caller, session, "large", dispatched=action())
    assert events(session, "model_changed") == [("model_changed", {"model": "large"})]
    assert entries.of(alice.caller.tenant, [session.pk])[session.pk].model == "large"
    with pytest.raises(InvalidInput):
        session_changes.change_model(alice.caller, session, "huge", dispatched=action())
    with pytest.raises(InvalidInput):
        session_changes.change_model(alice.caller, session, "small", {"effort": "high"}, dispatched=action())


@pytest.mark.rule("R233")
@pytest.mark.rule("R235")
def test_settings_are_merged_or_replaced_and_secrets_are_never_published(alice: World, with_models: AgentSpec) -> None:
    session = make(alice, model="large", options={"tone": "softly", "key": "sk-first"})
    session_changes.change_settings(alice.caller, session, options={"key": "***"}, approval="auto", dispatched=action())
    assert listing.facts(session).options == {"tone": "softly", "key": "***", "model": "large"}
    session_changes.change_settings(
        alice.caller, session, options={"key": "sk-second"}, approval=None, replace=True, dispatched=action()
    )
    assert listing.facts(session).options == {"key": "***", "model": "large"}
    told = [payload for _, payload in events(session, "settings_changed")]
    assert told == [
        {"options": {"key": "***"}, "approval": "auto", "replace": False},
        {"options": {"key": "***"}, "approval": None, "replace": True},
    ]
    assert OptionValue.objects.filter(session=session, name="key").values_list("value", flat=True)[0] is None
    with pytest.raises(InvalidInput):
        session_changes.change_settings(alice.caller, session, options={"key": ""}, dispatched=action())


# --- clients ---


@pytest.mark.rule("R180")
def test_one_client_is_active_and_may_change_its_entry(alice: World) -> None:
    session = make(alice)
    clients.join(alice.caller, session, clients.Entry("c1", "Editor", [{"name": "open_file"}]), dispatched=action())
    with pytest.raises(NotPossible):
        clients.join(alice.caller, session, clients.Entry("c2", None, []), dispatched=action(client="c2"))
    clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action())
    assert [payload["client"] for _, payload in events(session, "client_joined")] == [
        {"id": "c1", "tools": [{"name": "open_file"}], "name": "Editor"},
        {"id": "c1", "tools": []},
    ]


@pytest.mark.rule("R189")
def test_only_the_client_that_left_may_return_in_its_grace_period(alice: World) -> None:
    session = make(alice)
    with pytest.raises(NotPossible):
        clients.change_tools(alice.caller, session, [], dispatched=action())
    clients.leave(alice.caller, session, "c9", dispatched=action(client="c9"))
    clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action())
    with pytest.raises(NotPossible):
        clients.leave(alice.caller, session, "c2", dispatched=action(client="c2"))
    clients.leave(alice.caller, session, "c1", dispatched=action())
    assert clients.active(session.pk) is None
    with pytest.raises(NotPossible):
        clients.join(alice.caller, session, clients.Entry("c2", None, []), dispatched=action(client="c2"))
    clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action())
    told = [payload for _, payload in events(session, "client_left")]
    assert [(each["client"], each["cause"], each["shown_after"]) for each in told] == [
        (None, "released", None),
        ("c1", "released", None),
    ]


@pytest.mark.rule("R181", "R182")
def test_a_client_cannot_add_tools_to_an_agent_without_client_tools(agents: Callable[..., AgentSpec], alice: World) -> None:
    with registry.use([agents(client_tools=False)]):
        session = make(alice)
        entry = clients.Entry("c1", None, [{"name": "open_file"}])
        with pytest.raises(InvalidInput) as refused:
            clients.join(alice.caller, session, entry, dispatched=action())
        assert "takes no client tools" in refused.value.faults[0].detail
        with pytest.raises(InvalidInput):
            make(alice, "sailor:/two", client=entry)
        clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action())
        with pytest.raises(InvalidInput):
            clients.change_tools(alice.caller, session, [{"name": "open_file"}], dispatched=action())
        clients.change_tools(alice.caller, session, [], dispatched=action())


@pytest.mark.rule("R181", "R182")
def test_a_client_cannot_add_more_tools_than_model_requests_allow(alice: World) -> None:
    session = make(alice)
    tools = [{"name": f"t{number}", "result_schema": {"description": "x" * 50_000}} for number in range(11)]
    with pytest.raises(InvalidInput) as refused:
        clients.join(alice.caller, session, clients.Entry("c1", None, tools), dispatched=action())
    assert refused.value.faults[0].path == ("tools",)
    assert "524,288 bytes" in refused.value.faults[0].detail
    with pytest.raises(InvalidInput):
        make(alice, "sailor:/two", client=clients.Entry("c1", None, tools))
    brought = [{"uri": f"file:/{number}", "displayName": "x" * 50_000} for number in range(11)]
    with pytest.raises(InvalidInput) as refused:
        clients.join(alice.caller, session, clients.Entry("c1", None, [], brought), dispatched=action())
    assert refused.value.faults[0].path == ("customizations",)
    clients.join(alice.caller, session, clients.Entry("c1", None, tools[:10]), dispatched=action())
    with pytest.raises(InvalidInput):
        clients.change_tools(alice.caller, session, tools, dispatched=action())


@pytest.mark.rule("R182")
def test_a_client_cannot_add_a_tool_whose_name_is_taken(alice: World) -> None:
    session = make(alice)
    for name in ("add_one", "hidden", "two words"):
        with pytest.raises(InvalidInput):
            clients.join(alice.caller, session, clients.Entry("c1", None, [{"name": name}]), dispatched=action())
    clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action())
    with pytest.raises(InvalidInput):
        clients.change_tools(alice.caller, session, [{"name": "x"}, {"name": "x"}], dispatched=action())
    clients.change_tools(alice.caller, session, [{"name": "x"}], dispatched=action())
    assert events(session, "client_tools_changed") == [
        ("client_tools_changed", {"client": "c1", "tools": [{"name": "x"}], "entry": {"id": "c1", "tools": [{"name": "x"}]}})
    ]


@pytest.mark.rule("R242")
def test_customizations_of_a_client_come_and_go_with_it(alice: World) -> None:
    session = make(alice)
    brought = {"uri": "file:///p", "displayName": "P"}
    clients.join(alice.caller, session, clients.Entry("c1", None, [], [brought]), dispatched=action())
    session_changes.toggle_customization(alice.caller, session, "file:///p", enabled=False, dispatched=action())
    with pytest.raises(NotPossible):
        session_changes.toggle_customization(alice.caller, session, "file:///q", enabled=False, dispatched=action())
    clients.leave(alice.caller, session, "c1", dispatched=action())
    told = [payload["customizations"] for _, payload in events(session, "customizations_changed")]
    assert told == [[{"customization": brought, "enabled": True, "client": "c1", "status": "loaded"}], []]
