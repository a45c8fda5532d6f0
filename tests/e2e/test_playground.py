"""The console's playground in a real browser: a person talks to agents. All tests share one server and one browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e import browser as browsers
from tests.e2e.browser import Browser, Page
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = browsers.find()
    if path is None:
        pytest.skip(browsers.MISSING)
    with browsers.running(path) as browser:
        yield browser


@pytest.fixture(scope="module")
def cookies(server: Server) -> dict[str, tuple[str, str]]:
    """The cookie of a signed-in owner, and of a reader, of the tenant alice."""
    lines = [line.split() for line in server.manage(code=SIGN_IN).splitlines()]
    return {role: (name, value) for role, (name, value) in zip(("owner", "reader"), lines, strict=True)}


class Person:
    """A person at the playground."""

    def __init__(self, server: Server, page: Page, cookie: tuple[str, str]) -> None:
        self.server, self.page = server, page
        page.call("Network.setCookie", name=cookie[0], value=cookie[1], url=server.origin())

    def open(self, session: str = "", agent: str = "echo") -> None:
        address = f"{self.server.origin()}/console/alice/playground/"
        self.page.open(f"{address}#{session}" if session else address)
        self.page.wait_for("document.querySelector('#agent').options.length")
        if not session:
            self.fill("#agent", agent)
            self.page.wait_for("!document.querySelector('#send').disabled")

    def fill(self, what: str, text: str) -> None:
        self.page.run(
            f"{{ const field = document.querySelector({what!r}); field.value = {json.dumps(text)};"
            " for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {bubbles: true})); }"
        )

    def click(self, what: str, text: str = "") -> None:
        """Click the first element that the selector finds and that has this text."""
        found = f"[...document.querySelectorAll({what!r})].find((one) => one.textContent.includes({text!r}) && !one.disabled)"
        self.page.wait_for(found)
        self.page.run(f"{found}.click()")

    def say(self, text: str) -> None:
        self.page.wait_for("!document.querySelector('#send').disabled")
        self.fill("#message", text)
        self.page.run("document.querySelector('#composer').requestSubmit()")

    def sees(self, text: str, where: str = "#entries") -> None:
        self.page.wait_for(f"document.querySelector({where!r})?.innerText.includes({text!r})")

    def text(self, where: str = "#entries") -> str:
        return str(self.page.run(f"document.querySelector({where!r}).innerText"))


@pytest.fixture
def person(server: Server, browser: Browser, cookies: dict[str, tuple[str, str]]) -> Iterator[Person]:
    with browser.page() as page:
        yield Person(server, page, cookies["owner"])
        assert page.complaints == []
        assert [asked for asked in page.asked if not asked.startswith((f"{server.origin()}/", "data:"))] == []


def test_a_person_talks_to_an_agent_reloads_in_mid_answer_and_stops_it(person: Person, model: ModelServer) -> None:
    gate = f"playground-{person.server.shape}"
    prompt = model.script([steps.thinking("Well, "), steps.text("First **half**,"), steps.gate(gate), steps.text(" second one.")])
    person.open()
    person.say(prompt)
    person.sees("First half,")
    assert "second" not in person.text()
    person.page.call("Page.reload")
    # The page that was left is gone when its mark is.
    person.page.wait_for("document.readyState === 'complete' && document.querySelector('#entries .entry')")
    person.sees("First half,")
    model.open_gate(gate)
    person.sees("First half, second one.")
    person.sees("The agent has finished.", "#status")
    assert person.page.run("[...document.querySelectorAll('.markdown strong')].map((one) => one.textContent)") == ["half"]
    assert person.page.run("document.querySelector('.thinking').open") is False
    assert person.text().count("First") == 1
    endless = model.script([steps.text("On and on"), steps.gate(f"{gate}-never"), steps.text("never")])
    person.say(endless)
    person.sees("On and on")
    person.click("#stop")
    person.sees("Stopped.", "#status")
    person.page.wait_for("!document.querySelector('#send').disabled")
    session = person.page.run("location.hash.slice(1)")
    assert person.server.alice.history(session)[-1]["content"] == "On and on"
    # No key or token is left where another script or person could find it.
    kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.documentElement.outerHTML])"
    assert "aht_" not in person.page.run(kept)
    assert "aht_" not in "".join(person.page.asked)


def test_a_reader_sees_a_session_and_cannot_write(
    server: Server, browser: Browser, cookies: dict[str, tuple[str, str]], model: ModelServer
) -> None:
    session = server.alice.create("echo")
    server.alice.turn(session, model.script([steps.text("For all to read.")]))
    with browser.page() as page:
        reader = Person(server, page, cookies["reader"])
        reader.open(session)
        reader.sees("For all to read.")
        assert page.run("['send', 'stop', 'message'].every((id) => document.getElementById(id).disabled)")
        # Live, while another client talks.
        server.alice.turn(session, model.script([steps.text("And this is new.")]))
        reader.sees("And this is new.")
        assert page.complaints == []
