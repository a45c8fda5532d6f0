"""The exporter with real collectors: batches, retries, and what happens while none answers."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agenthost.tracing.configuration import Configuration
from agenthost.tracing.exporter import SPANS, Exporter, NotTaken, probe
from agents_app.tracing import INTERNAL, Context, Sampler, Span
from ops.services import free_port
from tests.fakes.collector import Collector, collecting

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def configured(url: str, **given: object) -> Configuration:
    made = Configuration(
        url=f"{url}/v1/traces",
        headers={"api-key": "canary"},
        resource={"service.name": "agenthost"},
        sampler=Sampler(),
        compresses=False,
        timeout=5.0,
        certificate=None,
        queue=100,
        batch=10,
        pause=0.01,
        longest=1000,
        content=False,
        providers=frozenset(),
    )
    return replace(made, **given)  # type: ignore[arg-type]


def span(number: int) -> Span:
    made = Span(f"span {number}", INTERNAL, Context(TRACE, f"{number + 1:016x}", sampled=True), recorded=True)
    made.began, made.ended = 1, 2
    return made


def counted(outcome: str) -> float:
    return float(SPANS.labels(outcome)._value.get())


def test_everything_arrives_in_batches_before_the_process_ends(collector: Collector) -> None:
    exporter, before = Exporter(configured(collector.url, pause=60.0), {"agenthost.role": "web"}), counted("sent")
    exporter.start()
    for number in range(25):
        exporter.record(span(number))
    exporter.close(30)
    assert sorted(each.name for each in collector.spans) == sorted(f"span {number}" for number in range(25))
    assert collector.spans[0].resource == {"agenthost.role": "web", "service.name": "agenthost"}
    assert max(len(body) for body in collector.bodies) < min(map(len, collector.bodies)) * 4
    assert counted("sent") - before == 25


def test_the_content_may_be_compressed(collector: Collector) -> None:
    exporter = Exporter(configured(collector.url, compresses=True), {})
    exporter.start()
    exporter.record(span(1))
    exporter.close(30)
    assert [each.name for each in collector.spans] == ["span 1"]
    assert collector.headers[0]["content-encoding"] == "gzip"


def test_a_collector_that_is_busy_is_asked_again(collector: Collector) -> None:
    collector.status = 503
    exporter = Exporter(configured(collector.url), {})
    exporter.start()
    exporter.record(span(1))
    collector.until(lambda _: len(collector.headers) == 1)
    collector.status = 200
    assert collector.until(lambda spans: bool(spans))[0].name == "span 1"
    exporter.close(30)


def test_without_a_collector_the_queue_stays_small_and_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    exporter = Exporter(configured(f"http://127.0.0.1:{free_port()}"), {})
    dropped = counted("dropped")
    for number in range(1000):
        exporter.record(span(number))
    assert counted("dropped") - dropped == 900
    exporter.start()
    lost = counted("lost")
    exporter.close(60)
    assert counted("lost") - lost >= 10
    lines = [each.getMessage() for each in caplog.records if "traces_not_sent collector" in each.getMessage()]
    assert len(lines) == 1
    assert "ConnectionRefusedError" in lines[0]
    assert "canary" not in caplog.text


def test_an_hour_without_a_collector_is_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    clock = [0.0]
    monkeypatch.setattr("agenthost.tracing.exporter.time.monotonic", lambda: clock[0])
    exporter = Exporter(configured("http://127.0.0.1:1"), {})
    for second in range(0, 3600, 5):
        clock[0] = float(second)
        exporter._report(NotTaken("status 500", passes=False), 1)
    assert len(caplog.records) == 60
    assert "spans=12" in caplog.records[-1].getMessage()


def test_a_kept_connection_that_the_collector_has_closed_costs_no_span() -> None:
    port = free_port()
    with collecting(port) as first:
        exporter = Exporter(configured(first.url), {})
        exporter.start()
        exporter.record(span(1))
        first.until(lambda spans: len(spans) == 1)
    with collecting(port) as second:
        exporter.record(span(2))
        assert second.until(lambda spans: bool(spans))[0].name == "span 2"
        exporter.close(30)


def test_a_collector_that_never_answers_is_waited_for_in_the_exporters_thread_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = Exporter(configured(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=30.0), {})
        exporter.start()
        exporter.record(span(1))
        with silent.accept()[0]:
            began = time.monotonic()
            for number in range(1000):
                exporter.record(span(number))
            exporter.close(0.1)
            assert time.monotonic() - began < 10
        exporter.close(30)


def test_the_probe_says_why_a_collector_takes_nothing(collector: Collector) -> None:
    probe(configured(collector.url))
    assert collector.headers[0]["api-key"] == "canary"
    collector.status = 401
    with pytest.raises(NotTaken, match="status 401"):
        probe(configured(collector.url))
    with pytest.raises(NotTaken, match="ConnectionRefusedError"):
        probe(configured(f"http://127.0.0.1:{free_port()}"))
