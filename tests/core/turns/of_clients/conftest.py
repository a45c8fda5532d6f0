"""Clients that stay until a test lets them go; the law of states after every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.core import tools
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test


@pytest.fixture(autouse=True)
def _nobody_goes_unasked(settings: Settings) -> None:
    """No process renews these connections, and a worker's sweep looks at them all the time."""
    settings.AGENTHOST_AHP_PRESENCE_SECONDS = settings.AGENTHOST_AHP_GRACE_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def _fresh_tools() -> Iterator[None]:
    tools.forget()
    yield
    tools.release.set()
