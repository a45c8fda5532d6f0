"""Warnings about protections that this deployment has turned off; logged at every start."""

from __future__ import annotations

import ipaddress
import logging

from django.conf import settings

log = logging.getLogger(__name__)


def warnings() -> list[str]:
    """One line for each protection that is turned off on a server that other machines can reach."""
    if settings.AGENTHOST_MODE == "embedded" and _is_loopback(settings.AGENTHOST_HOST):
        return []
    found = []
    if settings.AGENTHOST_PLAIN_HTTP:
        found.append(
            "plain HTTP is on: keys and passwords are sent unencrypted, cookies are not Secure, HSTS is off. "
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
