"""Warnings about protections that are turned off in this deployment; logged at every start."""

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
            "Use it in trusted networks only; otherwise put a TLS proxy in front and set AGENTHOST_PLAIN_HTTP=no."
        )
    if "*" in settings.ALLOWED_HOSTS:
        found.append("every host name is accepted. Set AGENTHOST_ALLOWED_HOSTS to the names of this server.")
    return found


def log_warnings() -> None:
    for line in warnings():
        log.warning("%s", line)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
