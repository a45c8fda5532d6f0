"""The audit sent to other systems over real sockets: syslog and a signed webhook, in order and at least once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from sessions_app.core.base import syslog
from sessions_app.core.tenancy import audit, audit_chain, audit_sinks
from sessions_app.core.tenancy.audit_sinks import SinkFailed, Syslog
from sessions_app.core.worker import housekeeping
from sessions_app.models import AuditRecord, AuditSink, Tenant
from tests.core.worker.test_webhooks import Endpoint, _plain, endpoint  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
WAIT = 30.0
HEAD = re.compile(rb"<(\d+)>1 (\S+Z) (\S+) agenthost - (\S+) - (\{.*\})", re.DOTALL)


def link(*actions: audit.Action, tenant: Tenant | None = None) -> None:
    for number, action in enumerate(actions):
        audit.record(actor="admin:eve", action=action, target=f"thing {number} ü", tenant=tenant, address="::1")
    audit_chain.link_new()


def parsed(message: bytes) -> tuple[int, str, dict[str, Any]]:
    found = HEAD.fullmatch(message)
    assert found is not None, message
    return int(found[1]), found[4].decode(), json.loads(found[5])


@contextmanager
def stream_server(
    serve: Callable[[socket.socket], bytes], wrap: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """A server on a free port. ``serve`` answers one connection; what it returns is collected, by connection."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        with wrap.wrap_socket(connection, server_side=True) if wrap else connection as served:
                            data = serve(served)
                    except OSError:
                        data = b""
                got.append(data)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1], got
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT)


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(WAIT)
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        length, _, rest = data.partition(b" ")
        found.append(rest[: int(length)])
        data = rest[int(length) :]
    return found


# --- syslog ---


def test_each_record_is_one_message_of_rfc_5424_with_its_severity_and_itself_as_json() -> None:
    link(audit.Action.KEY_ISSUED, audit.Action.SIGN_IN_FAILED)
    with stream_server(read_all) as (port, got):
        assert audit_sinks.send_next(Syslog(syslog.read(f"tcp://127.0.0.1:{port}"))) == 2
    messages = [parsed(frame) for frame in frames(got[0])]
    assert [(priority, kind) for priority, kind, _ in messages] == [(109, "key_issued"), (108, "sign_in_failed")]
    assert [line["target"] for _, _, line in messages] == ["thing 0 ü", "thing 1 ü"]
    assert all(line["hash"] for _, _, line in messages)


def test_every_kind_of_record_fits_into_a_message() -> None:
    assert max(len(action.value) for action in audit.Action) <= 32


def test_datagrams_reach_udp_and_local_sockets(tmp_path: Path) -> None:
    link(audit.Action.KEY_ISSUED)
    path = tmp_path / "log"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
        udp.bind(("127.0.0.1", 0))
        local.bind(str(path))
        for server, address in ((udp, f"udp://127.0.0.1:{udp.getsockname()[1]}"), (local, f"unix://{path}")):
            server.settimeout(WAIT)
            AuditSink.objects.all().delete()
            assert audit_sinks.send_next(Syslog(syslog.read(address))) == 1
            assert parsed(server.recv(65536))[1] == "key_issued"


def test_tls_sends_only_to_a_server_whose_certificate_is_trusted(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    link(audit.Action.KEY_ISSUED)
    authority, chain = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with stream_server(read_all, context) as (port, got):
        with pytest.raises(SinkFailed, match="certificate of localhost is not valid"):
            Syslog(syslog.read(f"tls://localhost:{port}")).send(
                [{"at": timezone.now().isoformat(), "action": "key_issued", "link": 1}]
            )
        assert audit_sinks.send_next(Syslog(syslog.read(f"tls://localhost:{port}?ca={authority}"))) == 1
    assert b"".join(got).count(b"key_issued") == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate of localhost, and it with its key."""
    directory = tmp_path_factory.mktemp("certificate")
    key, cert, both = directory / "key.pem", directory / "cert.pem", directory / "both.pem"
    subprocess.run(
        [
            *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
            *["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)],
        ],
        check=True,
        capture_output=True,
    )
    both.write_text(key.read_text() + cert.read_text())
    return cert, both


def test_a_server_that_resets_the_connection_gets_the_batch_again() -> None:
    link(audit.Action.KEY_ISSUED, audit.Action.KEY_REVOKED)

    def crash(connection: socket.socket) -> bytes:
        data = connection.recv(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        return data

    crashes = [True, False]
    with stream_server(lambda connection: crash(connection) if crashes.pop(0) else read_all(connection)) as (port, got):
        sink = Syslog(syslog.read(f"tcp://127.0.0.1:{port}"))
        assert audit_sinks.send_next(sink) == 0
        row = AuditSink.objects.get(pk="syslog")
        assert (row.link, row.failures) == (0, 1)
        assert row.retry_at is not None
        # Not before its time.
        assert audit_sinks.send_next(sink) == 0
        AuditSink.objects.update(retry_at=timezone.now())
        assert audit_sinks.send_next(sink) == 2
    assert [parsed(frame)[1] for frame in frames(got[1])] == ["key_issued", "key_revoked"]
    assert AuditSink.objects.filter(failures=0, retry_at=None, error="").exists()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://siem", "must begin with"),
        ("tcp://", "is written as"),
        ("tcp://siem:x", "cannot be read"),
        ("udp://siem?ca=/x", "is written as"),
        ("unix://host/dev/log", "unix:///dev/log"),
        ("tls://user@siem", "no user"),
    ],
)
def test_a_wrong_address_is_refused_with_its_reason(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        syslog.read(address)


# --- webhook ---


def test_a_batch_is_one_signed_request_and_a_restart_sends_nothing_twice(
    endpoint: Endpoint,  # noqa: F811
    settings: Any,
) -> None:
    settings.AGENTHOST_AUDIT_WEBHOOK_URL, settings.AGENTHOST_AUDIT_WEBHOOK_SECRET = endpoint.url, SECRET
    link(audit.Action.KEY_ISSUED, audit.Action.KEY_REVOKED, tenant=Tenant.objects.create(slug="acme"))
    housekeeping.send_audit()
    housekeeping.send_audit()
    (got,) = endpoint.got
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    mac = base64.b64encode(hmac.digest(b"s" * 32, signed, hashlib.sha256)).decode()
    assert got.headers["webhook-signature"] == f"v1,{mac}"
    body = json.loads(got.body)
    assert body["type"] == "audit.records"
    assert [(each["action"], each["tenant"]) for each in body["data"]["records"]] == [
        ("key_issued", "acme"),
        ("key_revoked", "acme"),
    ]
    link(audit.Action.KEY_ROTATED)
    housekeeping.send_audit()
    assert [each["action"] for each in json.loads(endpoint.got[1].body)["data"]["records"]] == ["key_rotated"]


def test_a_webhook_that_fails_gets_the_same_batch_with_the_same_id_after_growing_pauses(
    endpoint: Endpoint,  # noqa: F811
) -> None:
    link(audit.Action.KEY_ISSUED)
    endpoint.answer = lambda handler: _plain(handler, 503)
    sink = audit_sinks.Webhook(endpoint.url, SECRET)
    pauses = []
    for _ in range(3):
        now = timezone.now()
        assert audit_sinks.send_next(sink) == 0
        row = AuditSink.objects.get(pk="webhook")
        assert row.retry_at is not None
        pauses.append(round((row.retry_at - now).total_seconds() / 30))
        AuditSink.objects.update(retry_at=now)
    assert (pauses, row.error) == ([1, 2, 4], "it answered 503")
    endpoint.answer = lambda handler: _plain(handler, 204)
    assert audit_sinks.send_next(sink) == 1
    assert len({got.headers["webhook-id"] for got in endpoint.got}) == 1


def test_the_webhook_is_sent_through_the_outbound_guard() -> None:
    link(audit.Action.KEY_ISSUED)
    with pytest.raises(SinkFailed, match="not a public one"):
        audit_sinks.Webhook("https://127.0.0.1/", SECRET).send([{"link": 1}])


# --- the command ---


def test_the_command_remembers_its_position_in_a_file(tmp_path: Path) -> None:
    link(audit.Action.KEY_ISSUED)
    position = tmp_path / "position"
    exported = []
    for _ in range(2):
        out = StringIO()
        call_command("export_audit", "--position", str(position), stdout=out)
        exported.append([json.loads(line)["action"] for line in out.getvalue().splitlines()])
        audit_chain.link_new()
    assert exported == [["key_issued"], ["audit_exported"]]


def test_the_command_sends_to_a_syslog_server_and_says_how_far_it_got(tmp_path: Path) -> None:
    link(audit.Action.KEY_ISSUED)
    position = tmp_path / "position"
    with stream_server(read_all) as (port, got):
        call_command("export_audit", "--syslog", f"tcp://127.0.0.1:{port}", "--position", str(position))
    assert [parsed(frame)[1] for frame in frames(got[0])] == ["key_issued"]
    sent = position.read_text()
    audit_chain.link_new()
    with pytest.raises(CommandError, match=rf"refused. Everything up to link {sent.strip()} was sent"):
        call_command("export_audit", "--syslog", f"tcp://127.0.0.1:{port}", "--position", str(position))
    assert position.read_text() == sent


def test_the_command_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "position").write_text("ten")
    for arguments, reason in (
        (["--syslog", "siem"], "the address is not valid"),
        (["--webhook", "https://siem.example/"], "AGENTHOST_AUDIT_WEBHOOK_SECRET"),
        (["--position", str(tmp_path / "position")], "no link's number"),
        (["--position", str(tmp_path)], "cannot be read"),
    ):
        with pytest.raises(CommandError, match=reason):
            call_command("export_audit", *arguments)


# --- how they stand ---


def test_a_sink_that_fails_says_how_far_it_is_behind_why_and_what_to_do(settings: Any) -> None:
    assert audit_sinks.standings() == []
    settings.AGENTHOST_AUDIT_SYSLOG = "tcp://127.0.0.1:1"
    link(audit.Action.KEY_ISSUED, audit.Action.KEY_REVOKED)
    (before,) = audit_sinks.standings()
    assert (before.behind, before.failures, before.is_well) == (2, 0, True), "new records are sent within minutes"
    audit_sinks.keep_up(0.1)
    (standing,) = audit_sinks.standings()
    assert (standing.name, standing.behind, standing.failures, standing.is_well) == ("syslog", 2, 1, False)
    assert "refused" in standing.error
    assert standing.retry_at is not None
    assert "Correct AGENTHOST_AUDIT_SYSLOG" in standing.advice


def test_records_that_nobody_sends_are_noticed_by_their_age_and_sent_ones_are_not(settings: Any) -> None:
    settings.AGENTHOST_AUDIT_SYSLOG = "udp://127.0.0.1:9"
    link(audit.Action.KEY_ISSUED)
    AuditRecord.objects.update(at=timezone.now() - timedelta(minutes=11))
    (standing,) = audit_sinks.standings()
    assert (standing.is_well, standing.lag >= timedelta(minutes=11)) == (False, True)
    assert "start one" in standing.advice
    audit_sinks.keep_up(5.0)
    (standing,) = audit_sinks.standings()
    assert (standing.is_well, standing.behind, standing.sent_at is not None) == (True, 0, True)
