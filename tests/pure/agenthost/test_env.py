"""Typed readers of environment variables."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from agenthost import env
from agents_app.outbound.policy import port_number

NAME = "AGENTHOST_SOMETHING"
KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.urlsafe_b64encode(bytes([251] * 32)).decode().rstrip("=")


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (lambda: env.text(NAME), " words ", "words"),
        (lambda: env.integer(NAME, 1), "7", 7),
        (lambda: env.integer(NAME, 1), "", 1),
        (lambda: env.limit(NAME), "7", 7),
        (lambda: env.limit(NAME), "", None),
        (lambda: env.number(NAME, 1.0), "0.25", 0.25),
        (lambda: env.boolean(NAME, default=False), "Yes", True),
        (lambda: env.boolean(NAME, default=True), "0", False),
        (lambda: env.duration(NAME, 1.0), "90", 90.0),
        (lambda: env.duration(NAME, 1.0), "500ms", 0.5),
        (lambda: env.duration(NAME, 1.0), "1.5 m", 90.0),
        (lambda: env.duration(NAME, 1.0), "24h", 86400.0),
        (lambda: env.duration(NAME, 1.0), "30D", 2592000.0),
        (lambda: env.items(NAME, []), "a, b,,c ", ["a", "b", "c"]),
        (lambda: env.parsed_items(NAME, int, []), "1, 2,,3 ", [1, 2, 3]),
        (lambda: env.parsed_items(NAME, int, [7]), "", [7]),
        (lambda: env.word(NAME, ("off", "all")), "", "off"),
        (lambda: env.word(NAME, ("off", "all")), "All", "all"),
        (lambda: env.url(NAME, ("redis",)), "redis://h/1", "redis://h/1"),
        (lambda: env.origins(NAME, []), "https://A.example, *", ["https://a.example", "*"]),
        (
            lambda: env.origins(NAME, []),
            "https://a.example:443,http://b:80,http://c:443",
            ["https://a.example", "http://b", "http://c:443"],
        ),
        (lambda: env.origins(NAME, [], subdomains=True), "https://*.example", ["https://*.example"]),
        (lambda: env.sealing_keys(NAME), f"{KEY},{OTHER_KEY}", [bytes(range(32)), bytes([251] * 32)]),
        (lambda: env.database(NAME), None, None),
    ],
)
def test_valid_values_are_parsed(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], Any], value: str | None, expected: object
) -> None:
    if value is not None:
        monkeypatch.setenv(NAME, value)
    assert read() == expected


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda: env.integer(NAME, 1), "seven"),
        (lambda: env.integer(NAME, 1), "1.5"),
        (lambda: env.integer(NAME, 1), "٣"),
        (lambda: env.integer(NAME, 1), "-3"),
        (lambda: env.integer(NAME, 1, most=10), "11"),
        (lambda: env.word(NAME, ("off", "all")), "yes"),
        (lambda: env.parsed_items(NAME, port_number, []), "80,70000"),
        (lambda: env.number(NAME, 1), "nan"),
        (lambda: env.number(NAME, 1, most=2), "3"),
        (lambda: env.boolean(NAME, default=False), "perhaps"),
        (lambda: env.duration(NAME, 1), "3 weeks"),
        (lambda: env.duration(NAME, 1, least=1), "10ms"),
        (lambda: env.url(NAME, ("redis",)), "http://h"),
        (lambda: env.url(NAME, ("redis",)), "localhost:6379"),
        (lambda: env.origins(NAME, []), "https://a.example/path"),
        (lambda: env.origins(NAME, []), "a.example"),
        (lambda: env.origins(NAME, []), "https://*.example"),
        (lambda: env.origins(NAME, [], subdomains=True), "https://a*.example"),
        (lambda: env.existing_file(NAME), "/nowhere/agents.toml"),
        (lambda: env.url(NAME, ("redis",)), "redis://:a/hush@h:6379/0"),
        (lambda: env.url(NAME, ("redis",)), "redis://h:port/0"),
        (lambda: env.url(NAME, ("amqp",)), "amqp://h:5672;amqp://u:a#hush@h:5672"),
        (lambda: env.database(NAME), "postgres://u:a/hush@h/d"),
        (lambda: env.sealing_keys(NAME), "c2hvcnQ="),
        (lambda: env.sealing_keys(NAME), "not base64 at all"),
        (lambda: env.sealing_keys(NAME), f"{KEY},{KEY}"),
        (lambda: env.database(NAME), "mysql://h/d"),
        (lambda: env.database(NAME), "postgres://h:port/d"),
        (lambda: env.database(NAME), "postgres://h"),
        (lambda: env.role(NAME), "webb"),
    ],
)
def test_a_bad_value_names_the_variable_and_not_the_value(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], Any], value: str
) -> None:
    monkeypatch.setenv(NAME, value)
    with pytest.raises(ImproperlyConfigured) as refusal:
        read()
    assert str(refusal.value).startswith(NAME)
    assert value not in str(refusal.value)


def test_a_value_may_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xef\xbb\xbfhush\n")
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "secret"))
    assert env.text(NAME) == "hush"


def test_a_file_that_cannot_be_read_names_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "missing"))
    with pytest.raises(ImproperlyConfigured, match=f"{NAME}_FILE"):
        env.text(NAME)


def test_a_value_and_a_file_at_once_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NAME, "a")
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "b"))
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} and {NAME}_FILE"):
        env.text(NAME)


def test_a_postgres_url_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "postgresql://an%40na:p%2Fw@db:6543/agent%20host?sslmode=require")
    found = env.database(NAME)
    assert found is not None
    assert (found.vendor, found.name, found.user, found.password) == ("postgresql", "agent host", "an@na", "p/w")
    assert (found.host, found.port, dict(found.options)) == ("db", "6543", {"sslmode": "require"})
    assert "p/w" not in repr(found)


def test_a_postgres_socket_is_configured_in_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "postgres:///agenthost?host=/run/postgresql&port=6000")
    found = env.database(NAME)
    assert found is not None
    assert (found.host, found.port, dict(found.options)) == ("/run/postgresql", "6000", {})


def test_an_sqlite_address_names_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "sqlite:////srv/agenthost.sqlite3")
    found = env.database(NAME)
    assert found is not None
    assert (found.vendor, found.name) == ("sqlite", "/srv/agenthost.sqlite3")
