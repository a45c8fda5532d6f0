"""Sends finished spans to the collector, from a thread of its own. Nothing else ever waits for it.

The queue is bounded: while the collector does not answer, spans are dropped and counted, and turns go on as fast as ever.
"""

from __future__ import annotations

import gzip
import http.client
import logging
import random
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

from prometheus_client import Counter

from agenthost.tracing import otlp
from agenthost.tracing.configuration import Configuration
from agents_app.tracing import Span, Value

log = logging.getLogger(__name__)

SPANS = Counter(
    "agenthost_trace_spans_total",
    "Spans that ended in this process: sent, dropped from a full queue, or lost because the collector did not take them.",
    ["outcome"],
)
_TRIES = 3
_PASSING = (429, 502, 503, 504)
"""Statuses after which the protocol allows another attempt."""
_LONGEST_WAIT = 5.0
_LOG_SECONDS = 60.0
_MOST_ANSWER = 65536
_BATCH_CHARACTERS = 4 * 1024 * 1024
"""About the largest request that collectors take; larger spans go alone."""


class NotTaken(Exception):
    """The collector did not take a batch. The text is for the log. ``passes``: it may take it later."""

    def __init__(self, reason: str, *, passes: bool, wait: float | None = None) -> None:
        self.passes, self.wait = passes, wait
        super().__init__(reason)


class Exporter:
    """Takes spans in any thread (``record``), and sends them. Made after forking."""

    def __init__(self, configuration: Configuration, resource: Mapping[str, Value]) -> None:
        self._configuration = configuration
        self._resource: dict[str, Value] = {**resource, **configuration.resource}
        self._queue: deque[Span] = deque()
        self._due, self._closing = threading.Event(), threading.Event()
        self._sending = threading.Lock()
        self._reported_at, self._unreported = float("-inf"), 0
        self._connection: http.client.HTTPConnection | None = None
        self._tls: ssl.SSLContext | None = None
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def record(self, span: Span) -> None:
        if len(self._queue) >= self._configuration.queue:
            SPANS.labels("dropped").inc()
            return
        self._queue.append(span)
        if len(self._queue) >= self._configuration.batch:
            self._due.set()

    def close(self, seconds: float) -> None:
        """Send what is left, within this time."""
        self._closing.set()
        self._due.set()
        self._thread.join(seconds)
        if left := len(self._queue):
            log.warning("traces_not_sent spans=%d: the process ends", left)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.is_set()
            if not is_last:
                self._due.wait(self._configuration.pause)
            self._due.clear()
            is_last = not self._send_all() or is_last
        self._disconnect()

    def _send_all(self) -> bool:
        """False: the process ends, and the collector does not take what is left."""
        while batch := self._batch():
            try:
                self._send(otlp.request(self._resource, batch))
            except Exception as error:  # the thread must go on
                SPANS.labels("lost").inc(len(batch))
                self._report(error, len(batch))
                if self._closing.is_set():
                    return False
            else:
                SPANS.labels("sent").inc(len(batch))
        return True

    def _batch(self) -> list[Span]:
        batch: list[Span] = []
        size = 0
        while self._queue and len(batch) < self._configuration.batch:
            size += sum(len(value) for value in self._queue[0].attributes.values() if isinstance(value, str))
            if batch and size > _BATCH_CHARACTERS:
                break
            batch.append(self._queue.popleft())
        return batch

    def _send(self, body: bytes) -> None:
        headers = {"Content-Type": otlp.CONTENT_TYPE, "User-Agent": "agenthost", **self._configuration.headers}
        if self._configuration.compresses:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        for attempt in range(_TRIES):
            try:
                self._post(body, headers)
            except NotTaken as problem:
                if not problem.passes or attempt == _TRIES - 1:
                    raise
                pause = min(_LONGEST_WAIT, problem.wait or 0.5 * 2**attempt * random.uniform(0.8, 1.2))  # noqa: S311
                if self._closing.wait(pause):
                    raise
            else:
                return

    def _post(self, body: bytes, headers: Mapping[str, str]) -> None:
        parts = urlsplit(self._configuration.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        was_open = self._connection is not None
        try:
            connection = self._connection = self._connection or self._connect()
            connection.request("POST", target, body, dict(headers))
            response = connection.getresponse()
            response.read(_MOST_ANSWER)
            if not response.isclosed():
                self._disconnect()
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            if was_open:
                # A connection that was kept may have been closed by the collector.
                self._post(body, headers)
                return
            raise NotTaken(type(error).__name__, passes=True) from None
        if 200 <= response.status < 300:
            return
        passes = response.status in _PASSING
        raise NotTaken(f"status {response.status}", passes=passes, wait=_seconds(response.getheader("Retry-After")))

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._configuration.url)
        timeout = self._configuration.timeout
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        self._tls = self._tls or ssl.create_default_context(cafile=self._configuration.certificate)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=self._tls)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _report(self, error: Exception, spans: int) -> None:
        """Once a minute: a collector that is down would fill the log."""
        self._unreported += spans
        if time.monotonic() - self._reported_at < _LOG_SECONDS:
            return
        reason = str(error) if isinstance(error, NotTaken) else type(error).__name__
        log.warning("traces_not_sent collector=%s spans=%d: %s", self._configuration.where, self._unreported, reason)
        self._reported_at, self._unreported = time.monotonic(), 0


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isdecimal() else None


def probe(configuration: Configuration) -> None:
    """Send an empty batch; ``NotTaken`` if the collector does not take it."""
    exporter = Exporter(configuration, {})
    try:
        exporter._post(otlp.request({}, ()), {"Content-Type": otlp.CONTENT_TYPE, **configuration.headers})
    finally:
        exporter._disconnect()
