"""Warnings at every start about protections that are turned off."""

from __future__ import annotations

import logging

import pytest
from pytest_django import Settings

from agenthost import security_warnings


@pytest.mark.parametrize(
    ("mode", "host", "plain", "names", "said"),
    [
        ("production", "0.0.0.0", False, ["agents.example"], []),
        ("production", "127.0.0.1", True, ["agents.example"], ["AGENTHOST_PLAIN_HTTP"]),
        ("production", "0.0.0.0", True, ["*"], ["AGENTHOST_PLAIN_HTTP", "AGENTHOST_ALLOWED_HOSTS"]),
        ("embedded", "127.0.0.1", True, ["*"], []),
        ("embedded", "::1", True, ["*"], []),
        ("embedded", "localhost", True, ["*"], []),
        ("embedded", "0.0.0.0", True, ["*"], ["AGENTHOST_PLAIN_HTTP", "AGENTHOST_ALLOWED_HOSTS"]),
    ],
)
def test_warnings_for_protections_that_are_turned_off(
    settings: Settings, caplog: pytest.LogCaptureFixture, mode: str, host: str, plain: bool, names: list[str], said: list[str]
) -> None:
    settings.AGENTHOST_MODE, settings.AGENTHOST_HOST = mode, host
    settings.AGENTHOST_PLAIN_HTTP, settings.ALLOWED_HOSTS = plain, names
    security_warnings.log_warnings()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * len(said)
    assert all(name in record.getMessage() for name, record in zip(said, caplog.records, strict=True))
