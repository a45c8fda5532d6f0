"""The settings of tracing: OpenTelemetry's own variables where it has one. Reads them through ``env``."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from agenthost import env
from agents_app.tracing import Sampler

_SAMPLERS = (
    "parentbased_always_on",
    "parentbased_traceidratio",
    "parentbased_always_off",
    "always_on",
    "traceidratio",
    "always_off",
)
_UNFIT = re.compile(r"[\x00-\x1f\x7f]|[^\x00-\xff]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"[a-z0-9._\[\]:-]+")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where spans are sent, and which. ``url``: of the collector, with its path."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    resource: Mapping[str, str]
    sampler: Sampler
    compresses: bool
    timeout: float
    certificate: str | None
    queue: int
    batch: int
    pause: float
    longest: int
    content: bool
    providers: frozenset[str]

    @property
    def where(self) -> str:
        """The collector's address without user, password and query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read() -> Configuration | None:
    """None: tracing is off, because no collector is named or a variable turns it off.

    Then OpenTelemetry's other variables are not read: they may be there for other programs.
    """
    content = env.boolean("AGENTHOST_TRACE_CONTENT", default=False)
    providers = frozenset(env.parsed_items("AGENTHOST_TRACE_PROVIDERS", _host, []))
    if env.boolean("OTEL_SDK_DISABLED", default=False) or env.word("OTEL_TRACES_EXPORTER", ("otlp", "none")) == "none":
        return None
    schemes = ("http", "https")
    base, exact = env.url("OTEL_EXPORTER_OTLP_ENDPOINT", schemes), env.url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", schemes)
    url = exact or (None if base is None else f"{base.rstrip('/')}/v1/traces")
    if url is None:
        return None
    if not urlsplit(url).hostname:
        name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" if exact else "OTEL_EXPORTER_OTLP_ENDPOINT"
        raise ImproperlyConfigured(f"{name}: the URL has no host.")
    env.word("OTEL_EXPORTER_OTLP_PROTOCOL", ("http/protobuf",))
    certificate = env.existing_file("OTEL_EXPORTER_OTLP_CERTIFICATE")
    if certificate is not None:
        _check_certificate(str(certificate))
    queue = env.integer("OTEL_BSP_MAX_QUEUE_SIZE", 2048, least=1, most=100_000)
    return Configuration(
        url=url,
        headers=_headers("OTEL_EXPORTER_OTLP_HEADERS", env.items("OTEL_EXPORTER_OTLP_HEADERS", [])),
        resource=_resource(),
        sampler=_sampler(),
        compresses=env.word("OTEL_EXPORTER_OTLP_COMPRESSION", ("none", "gzip")) == "gzip",
        timeout=env.integer("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000, least=100, most=60_000) / 1000,
        certificate=None if certificate is None else str(certificate),
        queue=queue,
        batch=env.integer("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(512, queue), least=1, most=queue),
        pause=env.integer("OTEL_BSP_SCHEDULE_DELAY", 5000, least=10, most=600_000) / 1000,
        longest=env.integer("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", 16384, least=64, most=1_048_576),
        content=content,
        providers=providers,
    )


def _headers(name: str, items: list[str]) -> dict[str, str]:
    """``name=value,name=value``, each value percent-encoded. Errors never quote it, because it usually has a key."""
    made = {}
    for number, item in enumerate(items, 1):
        header, separator, value = item.partition("=")
        header, value = header.strip(), unquote(value.strip())
        if not separator or not _NAME.fullmatch(header) or _UNFIT.search(value):
            raise ImproperlyConfigured(f"{name}: header {number} must be name=value, with the value percent-encoded.")
        made[header.lower()] = value
    return made


def _resource() -> dict[str, str]:
    made = {}
    for number, item in enumerate(env.items("OTEL_RESOURCE_ATTRIBUTES", []), 1):
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise ImproperlyConfigured(f"OTEL_RESOURCE_ATTRIBUTES: attribute {number} must be name=value.")
        made[unquote(name.strip())] = unquote(value.strip())
    service = env.text("OTEL_SERVICE_NAME", made.get("service.name", "agenthost"))
    return {**made, "service.name": service}


def _sampler() -> Sampler:
    name = env.word("OTEL_TRACES_SAMPLER", _SAMPLERS)
    kind = name.removeprefix("parentbased_")
    ratio = env.number("OTEL_TRACES_SAMPLER_ARG", 1.0, least=0.0, most=1.0)
    return Sampler({"always_on": 1.0, "always_off": 0.0}.get(kind, ratio), parent_based=kind != name)


def _host(text: str) -> str:
    host = text.lower()
    if not _HOST.fullmatch(host):
        raise ValueError("a host is needed, with its port if the address names one: api.example.org or localhost:8000")
    return host


def _check_certificate(path: str) -> None:
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError):
        raise ImproperlyConfigured("OTEL_EXPORTER_OTLP_CERTIFICATE: the file has no certificates in PEM form.") from None
