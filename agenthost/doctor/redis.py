"""Checks Redis and the broker: connection, version, latency, and permission to publish."""

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


def check() -> Iterator[Finding]:
    url = settings.AGENTHOST_REDIS_URL
    if url is None:
        if settings.AGENTHOST_MODE == "embedded":
            yield ok(NAME, "not needed by the embedded server")
        else:
            yield fail(NAME, "REDIS_URL is not set; web and worker processes need it.", "Set REDIS_URL.")
        return
    yield from check_redis(url)
    if url != settings.AGENTHOST_BROKER_URL:
        yield from check_broker()


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=_SECONDS, socket_timeout=_SECONDS)


def check_redis(url: str) -> Iterator[Finding]:
    where = host(url)
    try:
        with client(url) as conn:
            facts: Any = conn.info("server")
            times = [_ping(conn) for _ in range(5)]
            conn.publish("agenthost.doctor", b"")
    except redis.exceptions.AuthenticationError:
        yield fail(NAME, f"Redis at {where} refuses the user or password.", "Correct user and password in REDIS_URL.")
        return
    except redis.exceptions.NoPermissionError as error:
        fix = "Allow the user the commands INFO, PING, PUBLISH and SUBSCRIBE, and all channels and keys of agenthost."
        yield fail(NAME, f"Redis at {where}: {error}.", fix)
        return
    except (redis.exceptions.RedisError, OSError) as error:
        fix = "Start Redis, or correct REDIS_URL. Until then streams and workers poll the database."
        yield fail(NAME, f"Redis at {where} does not answer: {str(error).rstrip('.')}.", fix)
        return
    version, milliseconds = str(facts["redis_version"]), statistics.median(times)
    if int(version.partition(".")[0]) < OLDEST:
        yield fail(NAME, f"Redis {version} is too old.", f"Upgrade it to {OLDEST} or newer.")
    elif milliseconds > SLOW_MS:
        yield warning(NAME, f"Redis {version} at {where} answers in {milliseconds:.0f} ms.", "Run Redis closer to the processes.")
    else:
        yield ok(NAME, f"Redis {version} at {where}, answers in {milliseconds:.1f} ms")


def check_broker() -> Iterator[Finding]:
    where = host(settings.AGENTHOST_BROKER_URL or "")
    try:
        with app.connection_for_write(settings.AGENTHOST_BROKER_URL) as conn:
            conn.ensure_connection(max_retries=1, timeout=int(_SECONDS))
    except (OperationalError, OSError) as error:
        fix = "Start it, or correct CELERY_BROKER_URL. Until then workers find new turns only by polling the database."
        yield fail("broker", f"The broker at {where} does not answer: {str(error).rstrip('.')}.", fix)
    else:
        yield ok("broker", f"answers at {where}")


def host(url: str) -> str:
    """Host and port, without user and password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def _ping(conn: redis.Redis) -> float:
    started = time.perf_counter()
    conn.ping()
    return (time.perf_counter() - started) * 1000
