"""Which requests come from the web origin to which a token is bound."""

from __future__ import annotations

import pytest

from sessions_app.core.tenancy import origins

APP = "https://app.example.com"


@pytest.mark.parametrize(
    ("sent", "fetch_site", "host", "accepted"),
    [
        (APP, None, "agents.example.com", True),
        (APP, "cross-site", "agents.example.com", True),
        ("https://evil.example.com", "same-origin", "app.example.com", False),
        ("https://app.example.com.evil.com", None, "agents.example.com", False),
        ("http://app.example.com", None, "app.example.com", False),
        ("null", None, "app.example.com", False),
        ("", "same-origin", "app.example.com", False),
        (None, "same-origin", "app.example.com", True),
        (None, "same-origin", "app.example.com:443", True),
        (None, "same-origin", "APP.example.com", True),
        (None, "same-origin", "agents.example.com", False),
        (None, "cross-site", "app.example.com", False),
        (None, None, "app.example.com", False),
        (None, "same-origin", "", False),
    ],
)
def test_a_request_comes_from_the_origin_that_its_headers_name(
    sent: str | None, fetch_site: str | None, host: str, accepted: bool
) -> None:
    assert origins.is_from(APP, sent=sent, fetch_site=fetch_site, host=host) is accepted


@pytest.mark.parametrize("origin", [APP, "http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]:8000"])
def test_origins_as_browsers_send_them_are_accepted(origin: str) -> None:
    assert origins.fault(origin) is None
