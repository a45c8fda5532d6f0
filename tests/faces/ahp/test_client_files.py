"""Attached files of a client's own machine: the host asks for them, and lives with every answer and with none."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agents_app import exact_json, registry
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.dispatch import client_files
from sessions_app.models import Message, Turn
from tests.e2e.ahp_steps import create_session, start_action
from tests.e2e.ahp_watcher import Watcher
from tests.faces.ahp.test_workspaces import ROOT, opened, put
from tests.fakes.pictures import PIXEL
from tests.sample_tenants import SampleTenants

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("workspaces", "asking")]

NOTES = "file:///desk/notes.txt"
Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]


@pytest.fixture
def asking(host: str) -> Iterator[None]:
    """The host may ask for files of clients in sessions of ``echo``."""
    with registry.use(replace(spec, client_files=spec.name == "echo") for spec in registry.described().values()):
        yield


@asynccontextmanager
async def client_that(host: str, key: str, answer: Answer | None) -> AsyncIterator[Watcher]:
    client = Watcher(host, key, "alice", on_request=answer)
    await client.open()
    await client.initialize()
    yield client
    await client.close()


def answering(result: Any, asked: list[dict[str, Any]] | None = None) -> Answer:
    async def answer(method: str, params: dict[str, Any]) -> Any:
        assert method == "resourceRequest"
        if asked is not None:
            asked.append(params)
        if isinstance(result, Exception):
            raise result
        return result

    return answer


async def never(method: str, params: dict[str, Any]) -> Any:
    await asyncio.Event().wait()


async def start(client: Watcher, uri: str, *uris: str) -> None:
    attachments = [{"type": "resource", "label": f"file {number}", "uri": each} for number, each in enumerate(uris)]
    action = start_action(uri, "look", userMessage={"text": "look", "attachments": attachments})
    echo = await client.echo(await client.dispatch(action))
    assert "rejectionReason" not in echo, echo


async def cancel(client: Watcher, uri: str) -> None:
    turn = client.state(uri)["activeTurn"]["id"]
    await client.echo(await client.dispatch({"type": "session/turnCancelled", "session": uri, "turnId": turn}))


async def message() -> list[str]:
    """The blocks of the last user message, after its text."""
    found = await Message.objects.filter(role="user").order_by("-pk").afirst()
    assert found is not None
    content = exact_json.loads(found.content)
    return [block.get("text", block.get("url")) for block in content][1:] if isinstance(content, list) else []


@pytest.mark.rule("R34", "R338", "R154")
async def test_the_model_gets_what_the_client_gives(host: str, sample: SampleTenants) -> None:
    asked: list[dict[str, Any]] = []
    async with client_that(host, sample.alice.key, answering({"data": "remember\n", "encoding": "utf-8"}, asked)) as client:
        uri = await create_session(client)
        await start(client, uri, NOTES, NOTES, "notebook:/page/1", "https://example.org/a")
        assert asked == [{"uri": NOTES, "read": True}, {"uri": "notebook:/page/1", "read": True}]
        assert await message() == [
            "Attachment file 0:\nremember\n",
            "Attachment file 1:\nremember\n",
            "Attachment file 2:\nremember\n",
            "[Attachment file 3: https://example.org/a]",
        ]


async def test_a_picture_comes_as_base64(host: str, sample: SampleTenants) -> None:
    picture = {"data": PIXEL.partition(",")[2], "encoding": "base64", "contentType": "image/png"}
    async with client_that(host, sample.alice.key, answering(picture)) as client:
        uri = await create_session(client)
        await start(client, uri, "file:///desk/p.png")
        assert await message() == [PIXEL]


@pytest.mark.rule("R34", "R154")
@pytest.mark.parametrize(
    "answer",
    [
        {},
        None,
        [],
        {"data": 5},
        {"data": "no base64!", "encoding": "base64"},
        {"data": "\ud800"},
        {"data": "x" * 3000, "encoding": "utf-8"},
        RPCError(-32009, "No."),
        RPCError(-32603, "Broken."),
    ],
)
async def test_after_any_other_answer_the_model_gets_the_name(
    host: str, sample: SampleTenants, settings: Settings, answer: Any
) -> None:
    settings.AGENTHOST_IMAGE_BYTES = 1000
    async with client_that(host, sample.alice.key, answering(answer)) as client:
        uri = await create_session(client)
        await start(client, uri, NOTES)
        assert await message() == [f"[Attachment file 0: {NOTES}]"]


async def test_the_files_of_a_message_have_a_limit_together(host: str, sample: SampleTenants, settings: Settings) -> None:
    settings.AGENTHOST_IMAGE_BYTES = 100
    asked: list[dict[str, Any]] = []
    async with client_that(host, sample.alice.key, answering({"data": "x" * 90}, asked)) as client:
        uri = await create_session(client)
        await start(client, uri, *(f"file:///desk/{number}" for number in range(12)))
        assert len(asked) == client_files.MOST
        blocks = await message()
        assert [len(block) > 90 for block in blocks] == [True] * 2 + [False] * 10


@pytest.mark.rule("R34")
async def test_a_client_that_never_answers_delays_one_message(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_files, "SECONDS", 0.2)
    async with client_that(host, sample.alice.key, never) as client:
        uri = await create_session(client)
        await start(client, uri, NOTES)
        assert await message() == [f"[Attachment file 0: {NOTES}]"]
        await cancel(client, uri)
        # From then on it is not asked.
        monkeypatch.setattr(client_files, "SECONDS", 3600)
        await start(client, uri, NOTES)


@pytest.mark.rule("R34")
async def test_a_client_that_does_not_know_the_request_is_asked_once(host: str, sample: SampleTenants) -> None:
    asked: list[dict[str, Any]] = []
    async with client_that(host, sample.alice.key, answering(jsonrpc.method_not_found("resourceRequest"), asked)) as client:
        uri = await create_session(client)
        for _ in range(2):
            await start(client, uri, NOTES)
            await cancel(client, uri)
        assert len(asked) == 1


@pytest.mark.rule("R25", "R34")
async def test_a_second_answer_and_answers_to_nothing_are_ignored(host: str, sample: SampleTenants) -> None:
    client = Watcher(host, sample.alice.key, "alice", on_request=None)

    async def twice(method: str, params: dict[str, Any]) -> Any:
        # The host's first request on this connection.
        for id_ in (2, "1", 1, 1):
            await client.send(jsonrpc.response(id_, {"data": f"answer {id_!r}"}))
        return {"data": "late"}

    client._on_request = twice
    await client.open()
    await client.initialize()
    uri = await create_session(client)
    await start(client, uri, NOTES)
    assert await message() == ["Attachment file 0:\nanswer 1"]
    assert await client.request("ping") is None
    await client.close()


async def test_a_huge_answer_closes_the_connection_and_nothing_else(host: str, sample: SampleTenants, settings: Settings) -> None:
    settings.AGENTHOST_AHP_MAX_FRAME_BYTES = 100_000
    other = await opened(host, sample.alice.key, "other")
    async with client_that(host, sample.alice.key, answering({"data": "x" * 200_000})) as client:
        uri = await create_session(client)
        await client.dispatch(start_action(uri, "look", userMessage=with_notes()))
        assert await client.ended() == 1009
    assert not await Turn.objects.aexists()
    assert await other.request("ping") is None
    await other.close()


def with_notes() -> dict[str, Any]:
    return {"text": "look", "attachments": [{"type": "resource", "label": "notes", "uri": NOTES}]}


@pytest.mark.rule("R34")
async def test_the_action_of_a_client_that_disconnects_meanwhile_can_be_sent_again(host: str, sample: SampleTenants) -> None:
    reached = asyncio.Event()

    async def hang(method: str, params: dict[str, Any]) -> Any:
        reached.set()
        await asyncio.Event().wait()

    async with client_that(host, sample.alice.key, hang) as client:
        uri = await create_session(client)
        action = start_action(uri, "look", userMessage=with_notes())
        await client.dispatch(action)
        await asyncio.wait_for(reached.wait(), 30)
        client.cut()
        await client.ended()
        assert not await Turn.objects.aexists()
        client._on_request = answering({"data": base64.b64encode(b"again").decode(), "encoding": "base64"})
        await client.reconnect()
        await client.echo(await client.dispatch(action))
        assert await message() == ["Attachment notes:\nagain"]


@pytest.mark.rule("R335", "R338")
async def test_the_client_is_asked_neither_for_files_of_workspaces_nor_by_other_agents(host: str, sample: SampleTenants) -> None:
    asked: list[dict[str, Any]] = []
    async with client_that(host, sample.alice.key, answering({"data": "x"}, asked)) as client:
        await put(client, f"{ROOT}/a", "of the host")
        uri = await create_session(client)
        await start(client, uri, f"{ROOT}/a", f"{ROOT}/none")
        assert await message() == ["Attachment file 0:\nof the host", f"[Attachment file 1: {ROOT}/none]"]
        uri = await create_session(client, "pilot")
        await start(client, uri, NOTES)
        assert asked == []


@pytest.mark.rule("R52", "R84")
async def test_pings_are_answered_while_the_client_is_asked_and_later_actions_wait(host: str, sample: SampleTenants) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def later(method: str, params: dict[str, Any]) -> Any:
        reached.set()
        await go.wait()
        return {"data": "at last"}

    async with client_that(host, sample.alice.key, later) as client:
        uri = await create_session(client)
        action = start_action(uri, "look", userMessage=with_notes())
        first = await client.dispatch(action)
        second = await client.dispatch({"type": "session/turnCancelled", "session": uri, "turnId": action["turnId"]})
        await asyncio.wait_for(reached.wait(), 30)
        assert await client.request("ping") is None
        assert not client.seen
        go.set()
        echoes = [await client.echo(seq) for seq in (first, second)]
        assert all("rejectionReason" not in echo for echo in echoes)
        assert echoes[0]["serverSeq"] < echoes[1]["serverSeq"]
        assert await message() == ["Attachment notes:\nat last"]


async def test_one_that_may_only_read_is_not_asked(host: str, sample: SampleTenants, workspaces: Path) -> None:
    asked: list[dict[str, Any]] = []
    owner = await opened(host, sample.alice.key, "owner")
    uri = await create_session(owner)
    async with client_that(host, sample.alice.reading_key, answering({"data": "x"}, asked)) as client:
        echo = await client.echo(await client.dispatch(start_action(uri, "look", userMessage=with_notes())))
        assert "may only read" in echo["rejectionReason"]
        assert asked == []
    await owner.close()
