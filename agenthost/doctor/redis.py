"""Redis and the broker: reach, version, latency, and the right to publish."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from kombu.exceptions import OperationalError

from agenthost.celery import app
from agenthost.doctor.findings import Finding, fail, ok, warning

NAME = "redis"
OLDEST = 6
SLOW_MS = 50.0
_SECONDS = 3.0


def look() -> Iterator[Finding]:
    url = settings.AGENTHOST_REDIS_URL
    if url is None:
        if settings.AGENTHOST_MODE == "embedded":
            yield ok(NAME, "not needed by the embedded server")
        else:
            yield fail(NAME, "REDIS_URL is not set; web and worker processes need it.", "Set REDIS_URL.")
        return
    yield from of_redis(url)
    if url != settings.AGENTHOST_BROKER_URL:
        yield from of_broker()


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=_SECONDS, socket_timeout=_SECONDS)


def of_redis(url: str) -> Iterator[Finding]:
    where = host(url)
    try:
        with client(url) as made:
            facts: Any = made.info("server")
            times = [_ping(made) for _ in range(5)]
            made.publish("agenthost.doctor", b"")
    except redis.exceptions.AuthenticationError:
        yield fail(NAME, f"Redis at {where} refuses the user or password.", "Correct them in REDIS_URL.")
        return
    except redis.exceptions.NoPermissionError as error:
        fix = "Give the user the commands INFO, PING, PUBLISH and SUBSCRIBE, and all channels and keys of agenthost."
        yield fail(NAME, f"Redis at {where}: {error}.", fix)
        return
    except (redis.exceptions.RedisError, OSError) as error:
        fix = "Start Redis, or correct REDIS_URL. Until then streams poll the database, and workers the queue."
        yield fail(NAME, f"Redis at {where} does not answer: {str(error).rstrip('.')}.", fix)
        return
    version, took = str(facts["redis_version"]), statistics.median(times)
    if int(version.partition(".")[0]) < OLDEST:
        yield fail(NAME, f"Redis {version} is too old.", f"Upgrade it to {OLDEST} or newer.")
    elif took > SLOW_MS:
        yield warning(NAME, f"Redis {version} at {where} answers in {took:.0f} ms.", "Run it near the processes.")
    else:
        yield ok(NAME, f"Redis {version} at {where}, answers in {took:.1f} ms")


def of_broker() -> Iterator[Finding]:
    where = host(settings.AGENTHOST_BROKER_URL or "")
    try:
        with app.connection_for_write(settings.AGENTHOST_BROKER_URL) as made:
            made.ensure_connection(max_retries=1, timeout=int(_SECONDS))
    except (OperationalError, OSError) as error:
        fix = "Start it, or correct CELERY_BROKER_URL. Until then workers find new turns only when they look at the queue."
        yield fail("broker", f"The broker at {where} does not answer: {str(error).rstrip('.')}.", fix)
    else:
        yield ok("broker", f"answers at {where}")


def host(url: str) -> str:
    """Where it is, without user and password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def _ping(made: redis.Redis) -> float:
    began = time.perf_counter()
    made.ping()
    return (time.perf_counter() - began) * 1000
