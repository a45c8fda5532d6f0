"""Contents of large tool results: who reads them, and which results have them."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core.records import tool_contents
from sessions_app.models import CallState, Session, ToolCall
from tests.e2e.ahp_steps import create_session
from tests.faces.ahp.test_workspaces import code_of, issue, opened
from tests.fakes.pictures import PIXEL
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)


async def add_call(session: Session, call: str, result: Any, state: CallState = CallState.DONE, **more: Any) -> str:
    """A call as a run leaves it; the name of its content."""
    await ToolCall.objects.acreate(
        tenant_id=session.tenant_id,
        session=session,
        call_id=call,
        name="verbose",
        arguments="{}",
        runner="server",
        state=state,
        result=None if result is None else exact_json.dumps(result),
        created_at=timezone.now(),
        **more,
    )
    return tool_contents.name_of(call, 0)


@pytest.mark.rule("R337", "R339", "R9", "R381")
async def test_a_result_is_read_by_keys_that_see_the_session(host: str, sample: SampleTenants) -> None:
    alice = await opened(host, sample.alice.key, "alice")
    uri = await create_session(alice)
    name = await add_call(await Session.objects.aget(addresses__uri=uri), "call/1 \u00fc", "all of it")
    there = f"{uri}/content/{name}"
    for key in (sample.alice.key, sample.alice.reading_key, await issue(sample.alice, "echo")):
        client = await opened(host, key, "reader")
        assert (await client.request("resourceRead", {"uri": there}))["data"] == "all of it"
        await client.close()
    for key in (sample.bob.key, await issue(sample.alice, "pilot")):
        client = await opened(host, key, "other")
        assert await code_of(client, "resourceRead", uri=there) == -32006
        await client.close()
    # It can be read and nothing else (R337).
    assert await alice.request("resourceRequest", {"uri": there, "read": True}) == {}
    assert await code_of(alice, "resourceRequest", uri=there, write=True) == -32009
    assert await code_of(alice, "resourceRequest", uri=f"{there}x") == -32006
    assert await code_of(alice, "resourceWrite", uri=there, data="x", encoding="utf-8") == -32006
    assert await code_of(alice, "resourceDelete", uri=there) == -32006
    await alice.close()


@pytest.mark.rule("R339")
async def test_results_that_clients_do_not_see_have_no_content(host: str, sample: SampleTenants) -> None:
    alice = await opened(host, sample.alice.key, "alice")
    uri = await create_session(alice)
    session = await Session.objects.aget(addresses__uri=uri)
    hidden = [
        await add_call(session, "withheld", "secret", CallState.DENIED),
        await add_call(session, "running", None, CallState.RUNNING),
        await add_call(session, "of-client", "text", outcome="{}"),
        await add_call(session, "address", [{"type": "image", "url": "https://example.org/a.png"}]),
        "result-0-unknown",
        "result-0-a%00b",
        "result-0-%ed%a0%80",
        "result--1-address",
    ]
    for name in hidden:
        assert await code_of(alice, "resourceRead", uri=f"{uri}/content/{name}") == -32006, name
    picture = await add_call(session, "picture", [{"type": "image", "url": PIXEL}])
    read = await alice.request("resourceRead", {"uri": f"{uri}/content/{picture}"})
    assert (read["data"], read["encoding"], read["contentType"]) == (PIXEL.partition(",")[2], "base64", "image/png")
    await alice.close()
