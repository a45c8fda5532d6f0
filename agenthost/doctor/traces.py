"""Checks whether the collector of traces takes what it is sent."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from agenthost.doctor.findings import Finding, ok, warning
from agenthost.tracing.exporter import NotTaken, probe

NAME = "traces"


def check() -> Iterator[Finding]:
    configuration = settings.AGENTHOST_TRACING
    if configuration is None:
        yield ok(NAME, "off: no collector is set")
        return
    try:
        probe(configuration)
    except NotTaken as problem:
        fix = "Start it, or correct OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS. Only traces are lost until then."
        yield warning(NAME, f"The collector at {configuration.where} does not take traces: {problem}.", fix)
    else:
        yield ok(NAME, f"the collector at {configuration.where} takes traces")
