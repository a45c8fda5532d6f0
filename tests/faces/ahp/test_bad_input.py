"""Generated requests and actions, valid and invalid: each gets one answer, and folded states agree with snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import INTERNAL_ERROR, RPCError
from sessions_app.ahp.versions.v0_1.wire import commands, envelopes
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_watcher import Watcher
from tests.faces.ahp.generated import fitting, spoiled
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

URI = "echo:/target"
ASKED = [method for method in commands.COMMANDS if method not in ("initialize", "reconnect", "createSession", "disposeSession")]
ACTIONS = sorted(word for word in envelopes.FROM_CLIENTS if word.startswith("session/"))
# Without shrinking: each example is a conversation with a host.
few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])


class Lenient(Watcher):
    """Echoes may have unknown members, because they repeat actions as sent; states may not."""

    def _judge(self, frame: str) -> None:
        super()._judge(jsonrpc.encode(_meaningful(exact_json.loads(frame))))


def _meaningful(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _meaningful(item)
            for name, item in value.items()
            if name != "unheard-of" and (item is not None or name in ("activeClient", "result", "id"))
        }
    return [_meaningful(item) for item in value] if isinstance(value, list) else value


@asynccontextmanager
async def _ready(host: str, key: str) -> AsyncIterator[Watcher]:
    """A client that watches the one session that all examples share."""
    client = Lenient(host, key, "1")
    await client.open()
    try:
        await client.initialize(ROOT)
        # There since the first example.
        with suppress(RPCError):
            await client.request("createSession", {"session": URI, "provider": "echo"})
        await client.subscribe(URI)
        yield client
    finally:
        await client.close()


@pytest.mark.rule("R20", "R27", "R28", "R31")
@few
@given(data=st.data())
def test_commands_of_every_shape_get_one_answer_each(host: str, sample: SampleTenants, data: st.DataObject) -> None:
    asked: list[tuple[str, Any]] = []
    for _ in range(15):
        method = data.draw(st.sampled_from(ASKED))
        shape = commands.COMMANDS[method].params.declared
        params = data.draw(st.one_of(spoiled(shape), fitting(shape)))
        for member in ("session", "resource"):
            if isinstance(params, dict) and isinstance(params.get(member), str) and data.draw(st.booleans()):
                params[member] = URI
        asked.append((method, params))

    async def ask() -> None:
        async with _ready(host, sample.alice.key) as client:
            for number, (method, params) in enumerate(asked):
                frame = {"jsonrpc": "2.0", "id": f"{method} {number}", "method": method, "params": params}
                await client.send(jsonrpc.encode(frame))
            with pytest.raises(RPCError) as unknown:
                await client.request("dance")
            assert unknown.value.code == -32601
            client.all_answered()
            assert INTERNAL_ERROR not in client.codes

    asyncio.run(ask())


@pytest.mark.rule("R80", "R81", "R82", "R83", "R31", "R65", "R70")
@few
@given(data=st.data())
def test_actions_of_every_shape_are_echoed_rejected_or_ignored_and_states_agree(
    host: str, sample: SampleTenants, data: st.DataObject
) -> None:
    said: list[Any] = []
    for _ in range(20):
        word = data.draw(st.sampled_from(ACTIONS))
        shape = data.draw(st.sampled_from(envelopes.TYPES[word]))
        action = data.draw(st.one_of(fitting(shape), fitting(shape), spoiled(shape)))
        if isinstance(action, dict) and data.draw(st.integers(0, 9)):
            action["session"] = URI
        said.append(action)

    async def say() -> None:
        async with _ready(host, sample.alice.key) as client:
            for seq, action in enumerate(said, 1):
                await client.notify("dispatchAction", {"clientSeq": seq, "action": action})
            last = {"type": "session/titleChanged", "session": URI, "title": "the last"}
            await client.notify("dispatchAction", {"clientSeq": len(said) + 1, "action": last})
            await client.echo(len(said) + 1)
            about = [seq for seq, action in enumerate(said, 1) if _is_about_it(action) and not _waits(action)]
            answered = [each["origin"]["clientSeq"] for each in client.seen if "origin" in each]
            assert [seq for seq in answered if seq in about] == about
            reasons = [each["rejectionReason"] for each in client.seen if "rejectionReason" in each]
            assert all(reasons)
            assert not [reason for reason in reasons if "the host failed" in reason]
            await client.check(URI)
            await client.check(ROOT)

    asyncio.run(say())


def _is_about_it(action: Any) -> bool:
    """Whether the action is one at all, and about the session that is there."""
    return isinstance(action, dict) and isinstance(action.get("type"), str) and envelopes.resource(action) == URI


def _waits(action: dict[str, Any]) -> bool:
    """A change of model during a turn is announced at its end."""
    return bool(action["type"] == "session/modelChanged")
