"""The HTTP endpoint of the metrics: ``GET /metrics`` at AGENTHOST_METRICS_PORT, in every process of every role.

``GET /healthz`` says whether the process's event loops run, for the liveness probe of roles that have no other port.

It has a port and a thread of its own, so that no client of the protocols can reach it and a busy loop does not delay it. It
needs no key: bind it to an address that only the operator's network reaches (AGENTHOST_METRICS_HOST).
"""

from __future__ import annotations

import logging
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from prometheus_client import REGISTRY, Gauge, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from agenthost import forking
from agenthost.metrics.collectors import Installation, Process
from sessions_app.core.base import process_loop

log = logging.getLogger(__name__)

PATH = "/metrics"
HEALTH = "/healthz"
_TEXT = "text/plain; charset=utf-8"
_SECONDS = 2.0
"""Limit for a client to send its request and to take each piece of the response. One is served at a time."""

_LOOP_SECONDS = 2.0
"""An event loop that has not run for this long hangs."""

disable_created_metrics()  # type: ignore[no-untyped-call]
_INFO = Gauge("agenthost_process_info", "1, with the role of this process.", ["role"])


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS
    server_version, sys_version = "agenthost", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == HEALTH:
            if process_loop.silent(_LOOP_SECONDS):
                detail = f"An event loop of this process has not run for {_LOOP_SECONDS:g} s.\n"
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, detail.encode())
            else:
                self._answer(HTTPStatus.OK, _TEXT, b"ok\n")
            return
        if path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, f"The metrics are at {PATH}, the process's health at {HEALTH}.\n".encode())
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(HTTPStatus.OK, content_type, encode(REGISTRY))

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def _answer(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: a scrape every few seconds would fill the log."""


class _Server(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that left, or took too long: not an error of the server."""
        log.debug("metrics_request_failed")


def start(role: str) -> HTTPServer:
    """Serve this process's metrics. Of forked processes the first has AGENTHOST_METRICS_PORT, the others the next ports."""
    port = settings.AGENTHOST_METRICS_PORT + max(0, forking.number() - 1)
    try:
        server = _Server((settings.AGENTHOST_METRICS_HOST, port), _Handler)
    except (OSError, OverflowError) as error:
        raise ImproperlyConfigured(
            f"AGENTHOST_METRICS_PORT: the metrics cannot be served at {settings.AGENTHOST_METRICS_HOST}:{port}: {error}."
        ) from None
    _INFO.labels(role).set(1)
    for collector in (Installation(), Process()):
        REGISTRY.register(collector)
    threading.Thread(target=server.serve_forever, name="metrics-http", daemon=True).start()
    log.info("metrics_served address=http://%s:%d%s", *server.server_address[:2], PATH)
    return server
