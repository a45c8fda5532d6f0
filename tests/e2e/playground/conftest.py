"""One browser for all tests of the playground, with a person who is signed in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import browser as browsers
from tests.e2e.browser import Browser
from tests.e2e.playground.person import Person
from tests.e2e.server import Server

SIGN_IN = """
import sys, django
django.setup()
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore
from sessions_app.models import Member, Tenant
for role in ("owner", "reader"):
    user, _ = get_user_model().objects.get_or_create(username=f"playing {role}")
    Member.objects.get_or_create(tenant=Tenant.objects.get(slug="alice"), user=user, defaults={"role": role})
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    print(settings.SESSION_COOKIE_NAME, session.session_key)
"""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = browsers.find()
    if path is None:
        pytest.skip(browsers.MISSING)
    with browsers.running(path) as browser:
        yield browser


@pytest.fixture(scope="session")
def cookies(server: Server) -> dict[str, tuple[str, str]]:
    """The cookie of a signed-in owner, and of a reader, of the tenant alice."""
    lines = [line.split() for line in server.manage(code=SIGN_IN).splitlines()]
    return {role: (name, value) for role, (name, value) in zip(("owner", "reader"), lines, strict=True)}


@pytest.fixture
def person(server: Server, browser: Browser, cookies: dict[str, tuple[str, str]]) -> Iterator[Person]:
    with browser.page() as page:
        yield Person(server, page, cookies["owner"])
        assert page.complaints == []
        assert [asked for asked in page.asked if not asked.startswith((f"{server.origin()}/", "data:"))] == []
