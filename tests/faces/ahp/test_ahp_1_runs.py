"""AHP 0.9 and 1.0 with turns that run: confirmations, failures, questions that are skipped, turns of applications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from agents_app import exact_json, registry
from agents_app.spec import ToolSpec
from agents_app.tools import questions
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.turns import Permission
from sessions_app.core.turns.starting import NOTHING
from sessions_app.core.worker import worker
from sessions_app.models import Event
from tests.core.conftest import quick  # noqa: F401 - short times of the worker
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, chat_uri, mirroring
from tests.e2e.test_ahp_1_turns import calls_of, text_of
from tests.e2e.test_ahp_steering import QUESTIONS
from tests.fakes import steps, tools
from tests.fakes.model_server import ModelServer
from tests.sample_tenants import SampleTenants, make_session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_worker")]

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])


@pytest.fixture
def _worker(host: str, quick: None, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
    """A worker in this process, and ``echo`` with a tool that asks questions."""
    settings.AGENTHOST_AHP_PRESENCE_SECONDS = settings.AGENTHOST_AHP_GRACE_SECONDS = 3600.0
    monkeypatch.setenv(tools.DIRECTORY_VARIABLE, str(tmp_path))
    asking = ToolSpec("ask_user", questions.SOURCE, parameters=questions.PARAMETERS)
    specs = [replace(spec, tools=(asking,)) if spec.name == "echo" else spec for spec in registry.agents().values()]
    with registry.use(specs):
        one = worker.Worker()
        one.start()
        yield
        one.stop(grace=0.2)
    connection.close()


@pytest.mark.rule("V169", "V163")
@both
async def test_calls_are_confirmed_edited_and_denied_as_in_0_1(
    host: str, sample: SampleTenants, model: ModelServer, version: ClientVersion
) -> None:
    tide = steps.call("tide_table", {"harbour": "Bree"})
    async with mirroring(host, sample.alice.key, "captain", version=version) as client:
        uri, chat = await client.create("pilot")
        assert [each["name"] for each in client.state(uri)["serverTools"]] == ["tide_table", "order_rope"]

        async def asked(tool: str) -> dict[str, Any]:
            def found() -> dict[str, Any] | None:
                active = client.state(chat).get("activeTurn", {"responseParts": []})
                waiting = [each for each in calls_of(active) if each["status"] == "pending-confirmation"]
                return next((each for each in waiting if each["toolName"] == tool), None)

            call: dict[str, Any] = await client.until(found, 60)
            assert [(each["id"], each["kind"]) for each in call["options"]] == [
                ("allow-once", "approve"),
                ("allow-in-session", "approve"),
                ("deny", "deny"),
            ]
            return call

        turn = await client.start(chat, model.script([tide, steps.call("order_rope", {"metres": 3})], [steps.text("done")]))
        calls = [await asked(tool) for tool in ("tide_table", "order_rope")]
        approve = {"turnId": turn, "toolCallId": calls[0]["toolCallId"], "approved": True, "confirmed": "user-action"}
        deny = {"turnId": turn, "toolCallId": calls[1]["toolCallId"], "approved": False, "reason": "denied"}
        for wrong in ({**approve, "selectedOptionId": "deny"}, {**deny, "selectedOptionId": "allow-once"}):
            assert await client.refused(chat, "chat/toolCallConfirmed", **wrong)
        edited = {"editedToolInput": '{"harbour": "Cove"}', "selectedOptionId": "allow-once"}
        await client.act(chat, "chat/toolCallConfirmed", **approve, **edited)
        why = {"text": "Order chain instead", "origin": {"kind": "user"}}
        await client.act(chat, "chat/toolCallConfirmed", **deny, reasonMessage="No rope", userSuggestion=why)
        ended = await client.turn_ended(chat, turn)
        ran, denied = calls_of(ended)
        assert (ran["status"], ran["success"], ran["toolInput"]) == ("completed", True, edited["editedToolInput"])
        assert ran["selectedOption"]["id"] == "allow-once"
        assert "in Cove" in ran["content"][0]["text"]
        assert (denied["status"], denied["reason"], denied["reasonMessage"]) == ("cancelled", "denied", "No rope")
        assert denied["userSuggestion"] == why
        assert text_of(ended) == "done"
        # An option with a wider meaning counts from then on; input that is no object fails the call, and the turn continues.
        turn = await client.start(chat, model.script([tide], [steps.text("so")]))
        wider = {"turnId": turn, "toolCallId": (await asked("tide_table"))["toolCallId"], "approved": True}
        wider |= {"confirmed": "user-action", "selectedOptionId": "allow-in-session", "editedToolInput": "[1"}
        await client.act(chat, "chat/toolCallConfirmed", **wider)
        ended = await client.turn_ended(chat, turn)
        assert (calls_of(ended)[0]["success"], bool(calls_of(ended)[0]["error"]["message"])) == (False, True)
        assert text_of(ended) == "so"
        ended = await client.turn_ended(chat, await client.start(chat, model.script([tide], [steps.text("at once")])))
        assert (calls_of(ended)[0]["status"], text_of(ended)) == ("completed", "at once")
        await client.until(lambda: "inputNeeded" not in client.state(uri))
        await client.check(uri)
        await client.check(chat)


@pytest.mark.rule("V71", "V145", "V222")
@both
async def test_a_failure_has_a_type_and_a_message_and_asks_nobody_to_sign_in(
    host: str, sample: SampleTenants, model: ModelServer, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "sailor", version=version) as client:
        uri, chat = await client.create()
        for status in (400, 401):
            turn = await client.start(chat, model.script([steps.status(status)]))
            ended = await client.turn_ended(chat, turn)
            part = ended["responseParts"][-1]
            assert (ended["state"], part["kind"], set(part["error"])) == ("error", "error", {"errorType", "message"})
            assert "/" not in part["error"]["message"]
            await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 2)
            await client.check(chat)
            await client.check(uri)
        assert {each["type"] for each in client.heard} <= {"root/sessionAdded", "root/sessionSummaryChanged"}
        assert {each["action"]["type"].partition("/")[0] for each in client.seen} <= {"root", "session", "chat"}


@pytest.mark.rule("V209", "V104", "V200")
@both
async def test_what_waits_in_a_turn_of_an_application_is_shown_until_it_is_answered(
    host: str, sample: SampleTenants, model: ModelServer, version: ClientVersion
) -> None:
    session = await database.run(lambda: make_session(sample.alice.caller, "pilot", tools=[{"name": "tide_table"}]))
    uri = f"ahp-session:/{session.public_id}"
    tide = steps.call("tide_table", {"harbour": "Bree"})
    async with mirroring(host, sample.alice.key, "watcher", version=version) as watcher:
        await watcher.subscribe(uri)
        for by_application in (True, False):
            text = model.script([tide], [steps.text("done")])
            started = await database.run(turns.start, sample.alice.caller, session, content=text)
            entry = await watcher.needed(uri, "toolConfirmation")
            assert (entry["chat"], entry["turnId"]) == (chat_uri(uri), started.public_id)
            assert entry["toolCall"]["status"] == "pending-confirmation"
            assert (await watcher.check(uri))["inputNeeded"] == [entry]
            listed = (await watcher.request("listSessions", {"channel": ROOT}))["items"]
            assert [each["status"] & 31 for each in listed] == [24]
            call = entry["toolCall"]["toolCallId"]
            if by_application:
                grant = Permission(0, call, granted=True)
                await database.run(turns.answer, sample.alice.caller, session, answers=[grant], overrides=NOTHING)
            else:
                approve = {"turnId": entry["turnId"], "toolCallId": call, "approved": True, "confirmed": "user-action"}
                await watcher.act(entry["chat"], "chat/toolCallConfirmed", **approve)
            await watcher.until(lambda: "inputNeeded" not in watcher.state(uri), 60)
            await watcher.until(lambda: watcher.state(uri)["chats"][0]["status"] & 31 == 1, 60)
            await watcher.check(uri)


@pytest.mark.rule("V326", "V191", "V105")
@both
async def test_a_question_may_be_skipped_and_the_chats_activity_comes_and_goes(
    host: str, sample: SampleTenants, model: ModelServer, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "editor", version=version) as client:
        uri, chat = await client.create()
        turn = await client.start(chat, model.script([steps.call("ask_user", QUESTIONS)], [steps.text("aye")]))
        entry = await client.needed(uri, "chatInput")
        await client.act(chat, "chat/inputCompleted", requestId=entry["request"]["id"], response="cancel")
        ended = await client.turn_ended(chat, turn)
        (asked,) = [part for part in ended["responseParts"] if part["kind"] == "inputRequest"]
        assert (asked["response"], "answers" in asked["request"]) == ("cancel", False)
        assert (ended["state"], text_of(ended)) == ("complete", "aye")
        await client.until(lambda: "inputNeeded" not in client.state(uri))
        await client.check(chat)
        uri, chat = await client.create("pilot", config={"approval": "auto"})
        tide = steps.call("tide_table", {"harbour": "Bree"})
        turn = await client.start(chat, model.script([tide], [steps.text("done")]))
        await client.turn_ended(chat, turn)
        await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 1)
        shown = [each["action"].get("activity") for each in client.seen if each["action"]["type"] == "chat/activityChanged"]
        assert len(shown) == 2
        assert shown[0]
        assert shown[1] is None
        changes = [each["action"]["changes"] for each in client.seen if each["action"]["type"] == "session/chatUpdated"]
        assert [each["activity"] for each in changes if "activity" in each] == [shown[0], ""]
        assert "activity" not in await client.check(uri)
        assert "activity" not in await client.check(chat)


@pytest.mark.rule("V417")
@both
async def test_streamed_text_is_one_event_a_piece(
    host: str, sample: SampleTenants, model: ModelServer, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "reader", version=version) as client:
        uri, chat = await client.create()
        turn = await client.start(chat, model.script([steps.thinking(*"abcdefghij"), steps.text(*"0123456789" * 3)]))
        assert text_of(await client.turn_ended(chat, turn)) == "0123456789" * 3
        await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 1)
        pieces = [each["serverSeq"] for each in client.seen if each["action"]["type"] in ("chat/delta", "chat/reasoning")]
        rows = [each async for each in Event.objects.filter(tenant_id=sample.alice.caller.tenant).order_by("seq")]
        streamed = [each.seq for each in rows if each.kind in ("text_delta", "thinking_delta")]
        assert streamed == pieces != []
        # What follows from a turn besides: its title, its start and its end.
        following = [exact_json.loads(each.data)["changed"] for each in rows if each.kind == "conversation_changed"]
        assert len(following) <= 3, following
        assert len(rows) - len(streamed) < 25, [each.kind for each in rows]
