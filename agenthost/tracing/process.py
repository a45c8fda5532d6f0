"""Starts and ends tracing in a process of the server."""

from __future__ import annotations

import os
import socket

from django.conf import settings

from agenthost import forking
from agenthost.tracing.exporter import Exporter
from agents_app import tracing
from agents_app.tracing import Value

_CLOSING_SECONDS = 5.0

_exporter: Exporter | None = None


def start(role: str) -> None:
    """Trace in this process, if the operator wants it. Called after forking, because it starts a thread."""
    global _exporter
    configuration = settings.AGENTHOST_TRACING
    if configuration is None or _exporter is not None:
        return
    resource: dict[str, Value] = {
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        "agenthost.role": role,
        "agenthost.child": forking.number(),
    }
    _exporter = Exporter(configuration, resource)
    _exporter.start()
    tracing.install(
        tracing.Tracing(
            _exporter.record, configuration.sampler, configuration.content, configuration.providers, configuration.longest
        )
    )


def stop() -> None:
    """Send what is left. Spans that end later are lost."""
    global _exporter
    tracing.install(None)
    if _exporter is not None:
        _exporter.close(_CLOSING_SECONDS)
        _exporter = None
