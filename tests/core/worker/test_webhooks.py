"""Webhooks: what is recorded, signed, sent, repeated and given up; attacks by and on endpoints."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents_app.outbound import guard, posting
from agents_app.outbound.policy import Policy
from sessions_app.core import turns
from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import InvalidInput, NotPossible, WebhookNotFound
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import webhook_outbox, webhook_queue
from sessions_app.core.records.webhook_queue import Attempt
from sessions_app.core.tenancy import keys, tenants, usage_entries, webhooks
from sessions_app.core.tenancy.webhooks import Made
from sessions_app.core.worker import webhook_sender
from sessions_app.core.worker.worker import Worker
from sessions_app.models import AuditRecord, DeliveryState, Tenant, Webhook, WebhookDelivery, WebhookSecret
from tests.core.conftest import World, wait_for, wait_for_state

pytestmark = pytest.mark.django_db(transaction=True)

ALL = list(webhooks.TYPES)


@dataclass
class Got:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Endpoint:
    """An application's server. ``answer`` writes the answer to a request."""

    port: int = 0
    got: list[Got] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: _plain(handler, 204)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


def _plain(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append(Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            try:
                made.answer(self)
            except OSError:
                # The client has enough.
                self.close_connection = True

        def do_GET(self) -> None:
            made.got.append(Got(self.path, {}, b""))
            _plain(self, 200)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    before = guard.current().policy
    guard.set_policy(Policy.of([f"127.0.0.1:{made.port}"], [80, 443]))
    yield made
    guard.set_policy(before)
    server.shutdown()
    server.server_close()
    thread.join()


def make(world: World, url: str, types: list[str] | None = None) -> Made:
    return webhooks.create(world.caller.tenant, url=url, types=types or ALL, description="", actor="the tests")


def bodies(webhook: Webhook) -> list[dict[str, Any]]:
    rows = WebhookDelivery.objects.filter(webhook=webhook).order_by("pk")
    return [json.loads(row.body) for row in rows]


def send_all() -> None:
    """Send what is due, as a worker does, until nothing is."""

    async def send() -> None:
        while claimed := await asyncio.to_thread(webhook_queue.claim, 16, 4):
            for each in claimed:
                await asyncio.to_thread(webhook_queue.store, each, await webhook_sender._attempt(each))

    asyncio.run(send())


def is_signed(got: Got, secret: str) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    wanted = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return wanted in got.headers["webhook-signature"].split(" ")


# --- what is recorded ------------------------------------------------------------------------------


def test_the_end_of_a_turn_reaches_the_endpoint_signed(
    alice: World, start_worker: Callable[[], Worker], endpoint: Endpoint
) -> None:
    made = make(alice, endpoint.url)
    start_worker()
    accepted = alice.say(session := alice.session(), "hello")
    wait_for_state(accepted, "done")
    [got] = wait_for(lambda: endpoint.got, "a delivery")
    body = json.loads(got.body)
    assert (body["type"], body["id"]) == ("turn.ended", got.headers["webhook-id"])
    assert body["data"] == {
        "tenant": "alice",
        "session": session.public_id,
        "agent": "sailor",
        "turn": accepted.public_id,
        "status": "done",
        "stopReason": "end_turn",
    }
    assert body["createdAt"].endswith("Z")
    assert is_signed(got, made.secret)
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
    row = wait_for(lambda: WebhookDelivery.objects.filter(state="delivered").first(), "its end")
    assert (row.status, row.attempts) == (204, 1)


def test_a_turn_that_waits_and_one_that_is_cancelled_are_recorded(alice: World) -> None:
    made = make(alice, "https://app.example.com/hook")
    session = alice.session()
    accepted = alice.say(session, "hello")
    with journal.transaction() as tx:
        paused = Happening(Kind.RUN_PAUSED, {"turn": accepted.public_id, "run": 1})
        tx.append(NewEvent(session.tenant_id, session.pk, paused))
    turns.cancel(alice.caller, session)
    webhook_outbox.record_new()
    shown = [(body["type"], body["data"]["status"], body["data"]["turn"]) for body in bodies(made.webhook)]
    assert shown == [("turn.waiting", "waiting", accepted.public_id), ("turn.ended", "cancelled", accepted.public_id)]


def test_a_webhook_gets_only_its_types_and_only_its_tenants_turns(alice: World, bob: World) -> None:
    of_alice, waiting = make(alice, "https://a.example.com/"), make(alice, "https://b.example.com/", ["turn.waiting"])
    of_bob = make(bob, "https://c.example.com/")
    session = alice.session()
    alice.say(session, "hello")
    turns.cancel(alice.caller, session)
    webhook_outbox.record_new()
    assert [body["data"]["status"] for body in bodies(of_alice.webhook)] == ["cancelled"]
    assert bodies(waiting.webhook) == bodies(of_bob.webhook) == []


def test_events_are_recorded_once_and_in_order_whoever_records_them(alice: World) -> None:
    made = make(alice, "https://a.example.com/")
    expected = []
    for _ in range(5):
        session = alice.session()
        expected.append(alice.say(session, "hello").public_id)
        turns.cancel(alice.caller, session)
    webhook_outbox.record_new()
    position = Webhook.objects.get(pk=made.webhook.pk).position
    # As after a crash between the deliveries and the position, which share a transaction, so it cannot happen.
    Webhook.objects.filter(pk=made.webhook.pk).update(position=0)
    webhook_outbox.record_new()
    assert [body["data"]["turn"] for body in bodies(made.webhook)] == expected
    assert Webhook.objects.get(pk=made.webhook.pk).position == position


def test_what_happened_before_a_webhook_was_made_or_enabled_is_not_sent(alice: World) -> None:
    def cancelled_turn() -> str:
        session = alice.session()
        accepted = alice.say(session, "hello")
        turns.cancel(alice.caller, session)
        return accepted.public_id

    cancelled_turn()
    made = make(alice, "https://a.example.com/")
    settings: dict[str, Any] = {"url": made.webhook.url, "types": ALL, "description": "", "actor": "the tests"}
    webhooks.change(made.webhook, enabled=False, **settings)
    cancelled_turn()
    webhook_outbox.record_new()
    webhooks.change(made.webhook, enabled=True, **settings)
    last = cancelled_turn()
    webhook_outbox.record_new()
    assert [body["data"]["turn"] for body in bodies(made.webhook)] == [last]


def test_tenants_without_webhooks_cost_one_statement_a_round(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = alice.session()
    alice.say(session, "hello")
    turns.cancel(alice.caller, session)
    statements: list[str] = []
    rows = raw_sql.rows

    def counted_rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        statements.append(sql)
        return rows(sql, params)

    monkeypatch.setattr(raw_sql, "rows", counted_rows)
    with CaptureQueriesContext(connection) as queries:
        webhook_outbox.record_new()
    assert len(statements) == 1
    # Only SQLite's hand-written SQL goes through Django.
    assert len(queries) <= 1


def test_a_reached_quota_is_reported_once_a_day(alice: World) -> None:
    made = make(alice, "https://a.example.com/", ["quota.reached"])
    tenant = Tenant.objects.get(pk=alice.caller.tenant)
    tenants.set_limits(tenant, Limits(sessions=1), session_retention_days=None, actor="the tests")
    webhook_outbox.record_states()
    assert bodies(made.webhook) == []
    alice.session()
    usage_entries.fold_backlog(100, 1.0)
    for _ in range(2):
        webhook_outbox.record_states()
    assert [body["data"] for body in bodies(made.webhook)] == [{"tenant": "alice", "quota": "sessions", "limit": 1, "used": 1}]


def test_a_key_about_to_expire_is_reported_a_week_and_a_day_before(alice: World) -> None:
    made = make(alice, "https://a.example.com/", ["key.expiring"])
    tenant, now = Tenant.objects.get(pk=alice.caller.tenant), timezone.now()

    def issue(name: str, days: float) -> Any:
        return keys.issue(
            tenant, name=name, scopes=["*"], expires_at=now + timedelta(days=days), allowed_agents=None, actor="t"
        ).key

    soon, later = issue("soon", 30), issue("later", 40)
    issue("short", 0.5)
    type(soon).objects.filter(pk=soon.pk).update(expires_at=now + timedelta(days=6), created_at=now - timedelta(days=24))
    for _ in range(2):
        webhook_outbox.record_states()
    type(soon).objects.filter(pk=soon.pk).update(expires_at=now + timedelta(hours=20))
    webhook_outbox.record_states()
    assert [body["data"]["name"] for body in bodies(made.webhook)] == ["soon", "soon"]
    assert later.name not in str(bodies(made.webhook))


# --- what is sent ----------------------------------------------------------------------------------


def test_a_failed_delivery_is_tried_again_with_growing_pauses_and_then_given_up(alice: World, endpoint: Endpoint) -> None:
    endpoint.answer = lambda handler: _plain(handler, 500, b"not today")
    made = make(alice, endpoint.url)
    delivery = webhooks.send_test(made.webhook)
    pauses = []
    for _ in range(4):
        WebhookDelivery.objects.update(next_at=timezone.now())
        send_all()
        delivery.refresh_from_db()
        pauses.append((delivery.next_at - timezone.now()).total_seconds())
    assert [round(pause / wanted, 1) in (0.9, 1.0, 1.1) for pause, wanted in zip(pauses, webhook_queue.PAUSES, strict=False)]
    assert pauses == sorted(pauses)
    assert (delivery.state, delivery.status, delivery.answer, delivery.attempts) == ("pending", 500, "not today", 4)
    assert len({got.headers["webhook-id"] for got in endpoint.got}) == 1
    WebhookDelivery.objects.update(next_at=timezone.now(), until=timezone.now())
    send_all()
    delivery.refresh_from_db()
    assert delivery.state == DeliveryState.FAILED
    endpoint.answer = lambda handler: _plain(handler, 200, b"now")
    webhooks.repeat(made.webhook, delivery.public_id)
    send_all()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.answer) == ("delivered", "now")
    assert Webhook.objects.get().failing_since is None


def test_a_delivery_of_a_worker_that_died_is_sent_by_another_one(alice: World, endpoint: Endpoint) -> None:
    made = make(alice, endpoint.url)
    webhooks.send_test(made.webhook)
    assert len(webhook_queue.claim(16, 4)) == 1
    assert webhook_queue.claim(16, 4) == []
    WebhookDelivery.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    send_all()
    assert len(endpoint.got) == 1


def test_both_secrets_sign_while_one_replaces_the_other(alice: World, endpoint: Endpoint) -> None:
    first = make(alice, endpoint.url)
    second = webhooks.rotate(first.webhook, actor="the tests")
    webhooks.send_test(first.webhook)
    send_all()
    assert is_signed(endpoint.got[0], first.secret)
    assert is_signed(endpoint.got[0], second.secret)
    WebhookSecret.objects.filter(expires_at__isnull=False).update(expires_at=timezone.now())
    webhooks.send_test(first.webhook)
    send_all()
    assert not is_signed(endpoint.got[1], first.secret)
    assert is_signed(endpoint.got[1], second.secret)


def test_secrets_are_sealed_and_bound_to_their_webhook(alice: World) -> None:
    made, other = make(alice, "https://a.example.com/"), make(alice, "https://b.example.com/")
    assert made.secret.encode() not in bytes(WebhookSecret.objects.get(webhook=made.webhook).sealed)
    assert made.secret not in repr(made)
    WebhookSecret.objects.filter(webhook=other.webhook).delete()
    WebhookSecret.objects.filter(webhook=made.webhook).update(webhook=other.webhook)
    with pytest.raises(Exception, match="another place"):
        webhooks.secrets_of(other.webhook.pk)


def test_an_endpoint_that_fails_for_days_or_is_gone_is_disabled_with_the_reason(alice: World, endpoint: Endpoint) -> None:
    endpoint.answer = lambda handler: _plain(handler, 503)
    made = make(alice, endpoint.url)
    webhooks.send_test(made.webhook)
    send_all()
    row = Webhook.objects.get()
    assert row.failing_since is not None
    assert row.disabled_at is None
    Webhook.objects.update(failing_since=timezone.now() - webhooks.DISABLED_AFTER)
    WebhookDelivery.objects.update(next_at=timezone.now())
    send_all()
    row = Webhook.objects.get()
    assert row.disabled_at is not None
    assert "every attempt has failed since" in row.disabled_reason
    with pytest.raises(NotPossible, match="disabled"):
        webhooks.send_test(row)
    enabled = webhooks.change(row, url=row.url, types=ALL, description="", enabled=True, actor="the tests")
    assert enabled.failing_since is None
    endpoint.answer = lambda handler: _plain(handler, 410)
    webhooks.send_test(enabled)
    send_all()
    enabled.refresh_from_db()
    assert enabled.disabled_reason == "it answered 410 Gone"


def test_one_tenants_backlog_leaves_the_others_their_share(alice: World, bob: World) -> None:
    busy, quiet = make(alice, "https://a.example.com/"), make(bob, "https://b.example.com/")
    for _ in range(30):
        webhooks.send_test(busy.webhook)
    webhooks.send_test(quiet.webhook)
    claimed = webhook_queue.claim(16, 4)
    assert sorted(each.tenant for each in claimed) == sorted([busy.webhook.tenant_id] * 4 + [quiet.webhook.tenant_id])
    assert webhook_queue.claim(16, 4, full=[busy.webhook.tenant_id]) == []


# --- attacks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://localhost/",
        "https://intranet/",
        "https://db.internal/",
        "http://app.example.com/",
        "https://app.example.com:22/",
        "https://user:pass@app.example.com/",
        "https://0x7f000001/",
        "ftp://app.example.com/",
        "app.example.com",
        "https://app.example.com/" + "a" * 2000,
    ],
)
def test_addresses_of_the_operators_network_are_refused_when_a_webhook_is_made(alice: World, url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make(alice, url)
    assert refused.value.faults[0].path == ("url",)
    assert not Webhook.objects.exists()


def test_a_name_that_leads_into_the_operators_network_later_is_not_connected_to(alice: World, endpoint: Endpoint) -> None:
    made = make(alice, "https://rebinding.example.com/")
    Webhook.objects.update(url=endpoint.url)
    guard.set_policy(Policy.of([], [80, 443, endpoint.port]))
    webhooks.send_test(made.webhook)
    send_all()
    row = WebhookDelivery.objects.get()
    assert row.status is None
    assert "not a public one" in row.answer
    assert endpoint.got == []


def test_a_redirect_is_not_followed(alice: World, endpoint: Endpoint) -> None:
    endpoint.answer = lambda handler: _plain(handler, 307, Location=f"{endpoint.url}/elsewhere")
    made = make(alice, endpoint.url)
    webhooks.send_test(made.webhook)
    send_all()
    assert [got.path for got in endpoint.got] == ["/hook"]
    assert (WebhookDelivery.objects.get().state, WebhookDelivery.objects.get().status) == ("pending", 307)


def test_a_giant_answer_is_read_up_to_a_limit(alice: World, endpoint: Endpoint) -> None:
    def giant(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100_000):
            handler.wfile.write(b"\0x" * 4096)

    endpoint.answer = giant
    made = make(alice, endpoint.url)
    webhooks.send_test(made.webhook)
    send_all()
    row = WebhookDelivery.objects.get()
    assert len(row.answer) <= webhook_sender.ANSWER_BYTES
    assert "\0" not in row.answer
    assert row.state == "delivered"


def test_a_slow_endpoint_is_given_up(alice: World, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(posting, "SECONDS", 0.3)
    endpoint.answer = lambda _handler: (go.wait(30), None)[1]
    made = make(alice, endpoint.url)
    webhooks.send_test(made.webhook)
    send_all()
    go.set()
    assert "no complete answer" in WebhookDelivery.objects.get().answer


def test_a_webhook_with_too_many_waiting_deliveries_is_disabled(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "PENDING_MOST", 2)
    made = make(alice, "https://a.example.com/")
    for _ in range(2):
        webhooks.send_test(made.webhook)
    session = alice.session()
    alice.say(session, "hello")
    turns.cancel(alice.caller, session)
    webhook_outbox.record_new()
    assert "2 deliveries were waiting" in Webhook.objects.get().disabled_reason
    assert WebhookDelivery.objects.count() == 2


def test_a_tenant_has_a_limit_of_webhooks(alice: World, settings: Any) -> None:
    settings.AGENTHOST_TENANT_WEBHOOKS = 1
    make(alice, "https://a.example.com/")
    with pytest.raises(NotPossible, match="1 webhooks"):
        make(alice, "https://b.example.com/")


def test_an_attempt_is_judged_by_its_status() -> None:
    assert [Attempt(status, "", 1).succeeded for status in (199, 200, 299, 300, 404, None)] == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_webhook_that_was_deleted_meanwhile_is_not_found_and_its_deletion_is_recorded_once(alice: World) -> None:
    row = make(alice, "https://app.example.com/hook").webhook
    delivery = webhooks.send_test(row)
    gone = Webhook.objects.get(pk=row.pk)
    webhooks.delete(row, actor="t")
    as_before = {"url": gone.url, "types": gone.types, "description": "", "enabled": True, "actor": "t"}
    for late in (
        partial(webhooks.delete, gone, actor="t"),
        partial(webhooks.rotate, gone, actor="t"),
        partial(webhooks.change, gone, **as_before),
        partial(webhooks.send_test, gone),
        partial(webhooks.repeat, gone, delivery.public_id),
    ):
        with pytest.raises(WebhookNotFound):
            late()
    assert AuditRecord.objects.filter(action="webhook_deleted").count() == 1


def test_a_webhook_has_a_limit_of_tests_that_are_not_delivered(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TESTS_MOST", 2)
    row = make(alice, "https://app.example.com/hook").webhook
    first = webhooks.send_test(row)
    webhooks.send_test(row)
    with pytest.raises(NotPossible, match="limit"):
        webhooks.send_test(row)
    WebhookDelivery.objects.filter(pk=first.pk).update(state=DeliveryState.DELIVERED)
    webhooks.send_test(row)
