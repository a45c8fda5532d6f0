"""manage.py ahp_tail: a session printed while it happens, in every version of AHP."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from django.core.management.base import CommandError

from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.versions.for_clients import ALL, V0_1, V0_9, V1_0
from sessions_app.management.commands import ahp_tail
from tests.e2e.ahp_mirror import mirroring
from tests.e2e.ahp_watcher import url_of
from tests.e2e.server import Server
from tests.e2e.test_ahp_steering import QUESTIONS
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.rule("V1", "R47")

OFFERS: list[tuple[ClientVersion, ...]] = [ALL, (V1_0,), (V0_9,), (V0_1,)]


class Printed(ahp_tail.Command):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._more = asyncio.Event()

    def _write(self, text: str) -> None:
        self.text += text
        self._more.set()

    async def until(self, words: str) -> None:
        async with asyncio.timeout(60):
            while words not in self.text:
                self._more.clear()
                await self._more.wait()


async def test_all_versions_print_the_same(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    async with mirroring(url, key, "one") as one:
        uri, chat = await one.create("mate", config={"approval": "auto"})
        await one.turn_ended(chat, await one.start(chat, model.script([steps.thinking("hm"), steps.text("earlier")])))
        asks = model.script([steps.call("ask_user", QUESTIONS)], [steps.text("the tide is \x1b[2J"), steps.text("high")])
        turn = await one.start(chat, asks)
        entry = await one.needed(uri, "chatInput")
        printers = [Printed() for _ in OFFERS]
        tails = [
            asyncio.create_task(each.tail(url, key, uri, once=False, versions=offer))
            for each, offer in zip(printers, OFFERS, strict=True)
        ]
        for each in printers:
            await each.until(" running\n? ")
        await one.act(chat, "chat/inputCompleted", requestId=entry["request"]["id"], response="decline")
        await one.turn_ended(chat, turn)
        await one.turn_ended(chat, await one.start(chat, model.script(*[[steps.status(400)]] * 5)))
        await one.act(uri, "session/titleChanged", title="Tides")
        # Another session that is removed is none of their business.
        other, _ = await one.create()
        await one.request("disposeSession", {"channel": other})
        for each in printers:
            await each.until("== Tides\n")
        await one.request("disposeSession", {"channel": uri})
        await asyncio.wait_for(asyncio.gather(*tails), 60)
    for each in printers:
        assert "(thinking) hm\nearlier\n-- complete\n" in each.text
        assert "high" in each.text
        assert "\x1b" not in each.text
        assert "-- error: " in each.text
        assert each.text.endswith("== Tides\n== the session was deleted\n")
    live = [each.text.partition(" running\n? ")[2] for each in printers]
    assert live[0] == live[1] == live[2] == live[3]


async def test_once_ends_with_the_running_turn(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    async with mirroring(url, key, "one") as one:
        uri, chat = await one.create()
        slow = model.script([steps.text("one"), steps.gate("tail"), steps.text("two")])
        await one.start(chat, slow)
        # Of a chat, too, by its own URI.
        offers = [(uri, offer) for offer in OFFERS] + [(chat, (V1_0,))]
        printers = [Printed() for _ in offers]
        tails = [
            asyncio.create_task(each.tail(url, key, named, once=True, versions=offer))
            for each, (named, offer) in zip(printers, offers, strict=True)
        ]
        for each in printers:
            await each.until("one")
        model.open_gate("tail")
        await asyncio.wait_for(asyncio.gather(*tails), 60)
        assert [each.text.endswith("onetwo\n-- complete\n") for each in printers] == [True] * len(printers)
        for offer in OFFERS:
            with pytest.raises(CommandError, match="There is no "):
                await Printed().tail(url, key, "ahp-session:/nobody", once=True, versions=offer)


async def test_a_version_that_the_host_does_not_serve_is_named(server: Server) -> None:
    with pytest.raises(CommandError, match=r"It serves 1\.0\.0, 0\.9\.0, 0\.1\.0\."):
        await Printed().tail(url_of(server), server.keys.alice, "a:/b", once=True, versions=[replace(V1_0, offers=("7.0.0",))])


def test_the_version_is_that_of_the_protocol() -> None:
    parser = ahp_tail.Command().create_parser("manage.py", "ahp_tail")
    assert parser.parse_args(["ws://a", "a:/b"]).version is None
    assert parser.parse_args(["ws://a", "a:/b", "--version", "0.9"]).version == "0.9"
    with pytest.raises(CommandError):
        parser.parse_args(["ws://a", "a:/b", "--version", "5"])
