"""What of a developer's environment reaches the servers of tests and benchmarks."""

from __future__ import annotations

import pytest

from agents_app.providers import KEY_VARIABLES
from ops import clean_environment

KEYS = sorted({variable for variables in KEY_VARIABLES.values() for variable in variables})


@pytest.mark.parametrize("name", [*KEYS, "AGENTHOST_DEBUG", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"])
def test_no_setting_of_the_servers_and_no_vendors_key_gets_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "a developer's own")
    assert name not in clean_environment.inherited()


def test_the_rest_gets_through_and_so_does_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("AGENTHOST_TEST_DATABASE_SUFFIX", "x")
    assert clean_environment.inherited("AGENTHOST_TEST_DATABASE_SUFFIX")["AGENTHOST_TEST_DATABASE_SUFFIX"] == "x"
    assert clean_environment.inherited()["LANGUAGE"] == "de"
