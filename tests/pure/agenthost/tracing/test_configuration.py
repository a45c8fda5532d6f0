"""The settings of tracing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agenthost.tracing import configuration
from agenthost.tracing.configuration import Configuration
from agents_app.tracing import Sampler


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


def read(monkeypatch: pytest.MonkeyPatch, **given: str) -> Configuration | None:
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/", **given}.items():
        monkeypatch.setenv(name, value)
    return configuration.read()


def test_without_a_collector_tracing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configuration.read() is None
    # It may be there for other programs.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert configuration.read() is None
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL")
    assert read(monkeypatch, OTEL_SDK_DISABLED="true") is None
    assert read(monkeypatch, OTEL_SDK_DISABLED="", OTEL_TRACES_EXPORTER="none") is None


def test_the_usual_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(
        monkeypatch,
        OTEL_EXPORTER_OTLP_HEADERS="api-key=a%20b%3D,X-Org=7",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=staging,service.name=other",
        OTEL_SERVICE_NAME="harbour",
        OTEL_EXPORTER_OTLP_TIMEOUT="2500",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        OTEL_BSP_MAX_QUEUE_SIZE="100",
        AGENTHOST_TRACE_PROVIDERS="API.example.org, localhost:8000",
    )
    assert found is not None
    assert found.url == "http://collector:4318/v1/traces"
    assert found.headers == {"api-key": "a b=", "x-org": "7"}
    assert found.resource == {"deployment.environment.name": "staging", "service.name": "harbour"}
    assert (found.timeout, found.compresses, found.queue, found.batch, found.content) == (2.5, True, 100, 100, False)
    assert found.providers == {"api.example.org", "localhost:8000"}
    assert found.sampler == Sampler(1.0, parent_based=True)


def test_the_address_of_traces_is_taken_as_it_is_and_shown_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="https://user:canary@traces.example.org/in?key=canary")
    assert found is not None
    assert found.url.endswith("/in?key=canary")
    assert found.where == "https://traces.example.org/in"


@pytest.mark.parametrize(
    ("name", "argument", "sampler"),
    [
        ("parentbased_traceidratio", "0.25", Sampler(0.25, parent_based=True)),
        ("traceidratio", "0.25", Sampler(0.25, parent_based=False)),
        ("always_off", "", Sampler(0.0, parent_based=False)),
        ("parentbased_always_on", "0.25", Sampler(1.0, parent_based=True)),
    ],
)
def test_samplers(monkeypatch: pytest.MonkeyPatch, name: str, argument: str, sampler: Sampler) -> None:
    found = read(monkeypatch, OTEL_TRACES_SAMPLER=name, OTEL_TRACES_SAMPLER_ARG=argument)
    assert found is not None
    assert found.sampler == sampler


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "canary"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=canary"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=canary%0d%0ab: c"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_RESOURCE_ATTRIBUTES", "canary"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("AGENTHOST_TRACE_CONTENT", "perhaps"),
        ("AGENTHOST_TRACE_PROVIDERS", "https://api.example.org"),
    ],
)
def test_a_bad_value_is_refused_by_name_and_not_quoted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=name) as refused:
        read(monkeypatch, **{name: value})
    assert "canary" not in str(refused.value)


def test_a_file_without_certificates_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none here")
    with pytest.raises(ImproperlyConfigured, match="OTEL_EXPORTER_OTLP_CERTIFICATE"):
        read(monkeypatch, OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "ca.pem"))
