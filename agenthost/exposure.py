"""What this deployment leaves open on purpose; logged at every start, so that nobody forgets it."""

from __future__ import annotations

import ipaddress
import logging

from django.conf import settings

log = logging.getLogger(__name__)


def warnings() -> list[str]:
    """One line for each protection that a setting turns off where others could reach the server."""
    if settings.AGENTHOST_MODE == "embedded" and _is_loopback(settings.AGENTHOST_HOST):
        return []
    found = []
    if settings.AGENTHOST_PLAIN_HTTP:
        found.append(
            "plain HTTP is on: keys and passwords cross the network readable, cookies are not Secure, no HSTS is sent. "
            "For a trusted network only; elsewhere put TLS in front and set AGENTHOST_PLAIN_HTTP=no."
        )
    if "*" in settings.ALLOWED_HOSTS:
        found.append("every host name is accepted. Name your own in AGENTHOST_ALLOWED_HOSTS.")
    return found


def log_warnings() -> None:
    for line in warnings():
        log.warning("%s", line)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
