"""Quotas on one process, and on two web processes that count together."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.e2e import server as servers
from tests.e2e.client import Client, client_tool, tool, turn_body, user
from tests.e2e.load.concurrent_clients import at_once, statuses
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SET_LIMITS = """
import json, sys, django
django.setup()
from sessions_app.core.tenancy import keys, tenants
from sessions_app.core.base.caller import Limits
from sessions_app.models import ApiKey, Tenant
tenant = Tenant.objects.get(slug=sys.argv[1])
of_tenant, of_key = json.loads(sys.argv[2]), json.loads(sys.argv[3])
tenants.set_limits(tenant, Limits(**of_tenant), session_retention_days=None, actor="tests")
for key in ApiKey.objects.filter(tenant=tenant):
    keys.set_limits(key, Limits(**of_key), actor="tests")
"""
ASKING = client_tool("mine")


class Caller:
    """A tenant of its own with one key, in front of every web."""

    def __init__(self, server: Server, of_key: dict[str, int], of_tenant: dict[str, int]) -> None:
        slug = f"q{secrets.token_hex(4)}"
        (self.key,) = server.make_keys(f"{slug}/all/*/")
        server.manage(slug, json.dumps(of_tenant), json.dumps(of_key), code=SET_LIMITS)
        self.webs = [server.client(self.key, index) for index in range(len(server.ports))]

    @property
    def here(self) -> Client:
        return self.webs[0]

    @property
    def there(self) -> Client:
        """The other web, where there is one."""
        return self.webs[-1]


@pytest.fixture(scope="module", params=servers.shapes())
def counting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    webs = 2 if request.param == "production" else 1
    directory = tmp_path_factory.mktemp("quotas")
    with servers.running(request.param, directory, _model_server.url, webs=webs, environment=servers.DEFAULT_LEASES) as server:
        yield server


def refusal(response: httpx.Response) -> tuple[str, int]:
    """The policy and the retry time, which all three headers report consistently."""
    assert response.status_code == 429, response.text
    assert response.json()["title"] == "Too Many Requests"
    name, _, rest = response.headers["RateLimit"].partition(";")
    assert rest == f"r=0;t={response.headers['Retry-After']}"
    assert response.headers["RateLimit-Policy"].startswith(f"{name};q=")
    seconds = int(response.headers["Retry-After"])
    assert seconds > 0
    return name.strip('"'), seconds


def post_turn(client: Client, session: str, *messages: Any) -> httpx.Response:
    return client.post(f"/sessions/{session}/turns", turn_body(*messages))


def while_shared(server: Server, attempt: Callable[[], None]) -> None:
    """Until the webs counted together all the time: each says so when it counts alone because Redis let it wait."""
    for _ in range(5):
        apart = server.log_text().count("rate_limits_per_process")
        try:
            return attempt()
        except AssertionError:
            if server.log_text().count("rate_limits_per_process") == apart:
                raise
        end = time.monotonic() + 60
        while server.log_text().count("rate_limits_shared_again") < server.log_text().count("rate_limits_per_process"):
            assert time.monotonic() < end, "they do not count together again"
            server.alice.create()
    raise AssertionError("Redis answers late each time")


@pytest.mark.rule("A6", "A7", "A122")
@pytest.mark.parametrize("whose", ["tenant", pytest.param("key", marks=pytest.mark.slow)])
def test_turns_at_once_are_counted_over_all_webs(counting: Server, model: ModelServer, whose: str) -> None:
    limits = {"turns_at_once": 2}
    caller = Caller(counting, limits if whose == "key" else {}, limits if whose == "tenant" else {})
    gate = f"at once {whose} {counting.shape}"
    prompt = model.script([steps.gate(gate), steps.text("done")])
    sessions = [caller.here.create() for _ in range(3)]
    with caller.here.stream(sessions[0], prompt) as first, caller.there.stream(sessions[1], prompt) as second:
        model.wait_gate(gate, times=2)
        for client in caller.webs:
            name, _ = refusal(post_turn(client, sessions[2], "me too"))
            assert name == ("turns-at-once-of-key" if whose == "key" else "turns-at-once")
        assert caller.here.history(sessions[2]) == []
        model.open_gate(gate)
        for stream in (first, second):
            # The slot is free before the client receives the end of the turn.
            stream.until("turn_stop")
    assert caller.there.turn(sessions[2], "now").text == "echo: now"


@pytest.mark.rule("A6", "A77")
def test_a_turn_that_waits_for_its_client_uses_no_slot(counting: Server, model: ModelServer) -> None:
    caller = Caller(counting, {}, {"turns_at_once": 1})
    asking = model.script([steps.call("mine", {}, id="w1")], [steps.text("answered")])
    waiting = [caller.here.create(tools=[ASKING]) for _ in range(2)]
    for session in waiting:
        assert caller.there.turn(session, asking).stop == "tool_use"
    gate = f"the only place {counting.shape}"
    busy = caller.here.create()
    with caller.here.stream(busy, model.script([steps.gate(gate), steps.text("done")])) as stream:
        model.wait_gate(gate)
        assert refusal(post_turn(caller.there, waiting[0], tool("w1", "x")))[0] == "turns-at-once"
        model.open_gate(gate)
        stream.until("turn_stop")
    assert caller.there.turn(waiting[0], tool("w1", "x")).text == "answered"


@pytest.mark.rule("A6", "A7", "A122")
def test_turns_a_minute_are_shared_by_the_webs_and_seen_before_they_are_used_up(counting: Server, model: ModelServer) -> None:
    def use_up() -> None:
        caller = Caller(counting, {}, {"turns_per_minute": 3})
        began = time.monotonic()
        sessions = [caller.here.create() for _ in range(4)]
        for used, client in enumerate([caller.here, caller.there, caller.here]):
            answer = post_turn(client, sessions[used], "hello")
            assert answer.status_code == 200
            assert answer.headers["RateLimit-Policy"] == '"turns-per-minute";q=3;w=60'
            assert re.fullmatch(rf'"turns-per-minute";r={2 - used};t=\d+', answer.headers["RateLimit"])
        for client in caller.webs:
            name, seconds = refusal(post_turn(client, sessions[3], "once more"))
            assert name == "turns-per-minute"
            assert 60 - (time.monotonic() - began) - 1 <= seconds <= 60
        assert caller.here.history(sessions[3]) == []

    while_shared(counting, use_up)


@pytest.mark.rule("A6", "A85")
def test_an_exhausted_token_quota_ends_the_turn_at_its_next_commit_point(counting: Server, model: ModelServer) -> None:
    now = datetime.now(UTC)
    if (now.hour, now.minute) >= (23, 55):
        pytest.skip("a new day, with new tokens, is about to begin")
    caller = Caller(counting, {}, {"tokens_per_day": 100})
    prompt = model.script(
        [steps.text("looking "), steps.call("tide_table", {"harbour": f"dear {counting.shape}"}, id="t1"), steps.usage(90, 20)],
        [steps.text("never said")],
    )
    session = caller.here.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
    outcome = caller.here.turn(session, prompt, stream="delta")
    assert outcome.stop == "error"
    # The started step is completed with its tool results, and no further model call is made.
    assert [event.name for event in outcome.events] == ["turn_start", "text_delta", "tool_call", "tool_result", "turn_stop"]
    assert len(model.requests_of(prompt)) == 1
    assert counting.tools.executions("tide_table", harbour=f"dear {counting.shape}") == 1
    history = caller.there.history(session)
    assert [message["role"] for message in history] == ["user", "assistant", "tool"]
    assert "the tenant has used 110 of its 100 tokens" in counting.log_text()
    other = caller.there.create()
    for client in caller.webs:
        name, seconds = refusal(post_turn(client, other, "more"))
        assert name == "tokens-per-day"
        assert seconds <= 86_400
    assert caller.here.history(other) == []
    assert caller.there.history(session) == history


@pytest.mark.rule("A6", "A7")
@pytest.mark.parametrize("whose", ["tenant", pytest.param("key", marks=pytest.mark.slow)])
def test_the_session_quota_holds_for_concurrent_creations_on_all_webs(counting: Server, whose: str) -> None:
    limits = {"sessions": 3}
    caller = Caller(counting, limits if whose == "key" else {}, limits if whose == "tenant" else {})
    answers = at_once(counting, *[lambda client: client.post("/sessions", {"agent": {"name": "echo"}})] * 8, key=caller.key)
    assert statuses(answers) == [201] * 3 + [429] * 5
    for answer in answers:
        if answer.status_code == 429:
            assert refusal(answer)[0] == ("sessions-of-key" if whose == "key" else "sessions")
    made = [one["sessionId"] for one in caller.here.all_sessions()]
    assert sorted(made) == sorted(answer.json()["sessionId"] for answer in answers if answer.status_code == 201)
    assert caller.there.request("DELETE", f"/sessions/{made[0]}").status_code == 204
    # A place that was freed at one web is free at the other.
    assert caller.here.create()
    assert caller.there.post("/sessions", {"agent": {"name": "echo"}}).status_code == 429


@pytest.mark.rule("A6", "A7")
def test_the_quota_of_stored_bytes_refuses_whole_requests_and_is_freed_by_deleting(counting: Server, model: ModelServer) -> None:
    caller = Caller(counting, {}, {"stored_bytes": 3000})
    kept = caller.here.create(messages=[user("x" * 2000)])
    long = {"agent": {"name": "echo"}, "messages": [user("y" * 2000)]}
    for client in caller.webs:
        assert refusal(client.post("/sessions", long))[0] == "stored-bytes"
        assert refusal(post_turn(client, kept, "z" * 2000))[0] == "stored-bytes"
    assert caller.there.history(kept) == [user("x" * 2000)]
    assert len(caller.here.all_sessions()) == 1
    # Model output is stored even above the limit, because it was paid for.
    prompt = model.script([steps.text("w" * 3000)])
    assert caller.there.turn(kept, prompt).text == "w" * 3000
    assert refusal(post_turn(caller.here, kept, "?"))[0] == "stored-bytes"
    assert caller.here.request("DELETE", f"/sessions/{kept}").status_code == 204
    assert caller.there.post("/sessions", long).status_code == 201


@pytest.mark.rule("A4", "A93")
@pytest.mark.parametrize("whose", ["tenant", pytest.param("key", marks=pytest.mark.slow)])
def test_a_request_larger_than_this_caller_may_send_is_413(counting: Server, whose: str) -> None:
    limits = {"request_bytes": 400}
    caller = Caller(counting, limits if whose == "key" else {}, limits if whose == "tenant" else {})
    for client in caller.webs:
        session = client.create()
        answer = post_turn(client, session, "x" * 400)
        assert answer.status_code == 413
        assert "400 bytes" in answer.json()["detail"]
        assert client.history(session) == []
        assert client.turn(session, "short").text == "echo: short"


@pytest.mark.rule("A3")
def test_limits_of_one_tenant_do_not_affect_others(counting: Server) -> None:
    free = Caller(counting, {}, {})

    def use_up() -> None:
        bound = Caller(counting, {}, {"sessions": 1, "turns_per_minute": 1})
        session = bound.here.create()
        assert post_turn(bound.here, session, "one").status_code == 200
        refusal(post_turn(bound.there, session, "two"))
        refusal(bound.there.post("/sessions", {"agent": {"name": "echo"}}))

    while_shared(counting, use_up)
    for client in free.webs:
        for _ in range(2):
            answer = post_turn(client, client.create(), "hello")
            assert answer.status_code == 200
            assert "RateLimit" not in answer.headers
