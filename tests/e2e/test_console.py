"""The console in a real browser: keys, live sessions, hostile content, barriers. All tests share one server and one browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import browser as browsers
from tests.e2e import generators
from tests.e2e.browser import Browser, Page
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SIGN_IN = """
import django
django.setup()
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore
from sessions_app.core.tenancy import webhooks
from sessions_app.models import Member, Tenant
tenant = Tenant.objects.get(slug="alice")
user, _ = get_user_model().objects.get_or_create(username="an owner of <b>alice</b>")
Member.objects.get_or_create(tenant=tenant, user=user, defaults={"role": "owner"})
given = {"url": "https://hooks.example.com/", "types": ["turn.ended"], "description": "<b>ours</b>", "actor": "x"}
hook = webhooks.of_tenant(tenant.pk) or [webhooks.create(tenant.pk, **given).webhook]
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
print(settings.SESSION_COOKIE_NAME, session.session_key, hook[0].public_id)
"""
HOSTILE = (
    "# <script>document.title='owned'</script> **bold** ![x](http://127.0.0.1:9/pixel.png)"
    " <img src=x onerror=document.title='owned'> [go](javascript:document.title='owned')"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = browsers.find()
    if path is None:
        pytest.skip(browsers.MISSING)
    with browsers.running(path) as browser:
        yield browser


@pytest.fixture(scope="module")
def owner(server: Server) -> tuple[str, str, str]:
    """The cookie of a signed-in owner of the tenant alice, and the id of a webhook."""
    name, value, webhook = server.manage(code=SIGN_IN).split()
    return name, value, webhook


@pytest.fixture
def page(server: Server, browser: Browser, owner: tuple[str, str, str]) -> Iterator[Page]:
    with browser.page() as page:
        page.call("Network.setCookie", name=owner[0], value=owner[1], url=server.origin())
        yield page
        assert page.complaints == []
        assert [asked for asked in page.asked if not asked.startswith((f"{server.origin()}/", "data:"))] == []


def test_a_key_made_in_the_console_works_as_its_command_is_pasted(server: Server, page: Page) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on the PATH; Debian, Ubuntu: apt-get install curl")
    page.open(f"{server.origin()}/")
    assert page.run("location.pathname") == "/console/"
    page.open(f"{server.origin()}/console/alice/keys/new/")
    page.run("document.querySelector('[name=name]').value = 'from the console'")
    page.run("document.querySelector('[name=allowed_agents][value=echo]').click()")
    page.run("document.querySelector('main form').requestSubmit()")
    # The form's page may go away in the middle of a question, so the answer is found by a new one.
    command = ""
    for _ in range(200):
        try:
            command = page.run("document.getElementById('try-it')?.value ?? new Promise((wait) => setTimeout(wait, 100, ''))")
        except AssertionError:
            continue
        if command:
            break
    assert page.run("location.pathname") == "/console/alice/keys/", "a reload would make another key"
    pasted = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert "event: turn_stop" in pasted.stdout, pasted.stderr
    page.open(f"{server.origin()}/console/alice/keys/")
    assert page.run("document.body.innerText.includes('from the console')")


def test_an_open_page_follows_a_session_until_its_messages_are_stored(server: Server, page: Page, model: ModelServer) -> None:
    gate = f"console-{server.shape}"
    prompt = model.script(
        [steps.thinking("Well."), steps.text("**Hel**<i>"), steps.gate(gate), steps.text("lo, **<b>page</b>**.")]
    )
    session = server.alice.create("echo")
    page.open(f"{server.origin()}/console/alice/sessions/{session}/")
    with server.alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        page.wait_for("document.querySelector('#live .ah-markdown')?.innerHTML === '<p><strong>Hel</strong>&lt;i&gt;</p>'")
        assert page.run("document.querySelector('#live .ah-thinking .ah-text').textContent") == "Well."
        page.wait_for("document.querySelector('#facts .badge')?.textContent === 'running'")
        model.open_gate(gate)
        page.wait_for("document.querySelector('article.ah-assistant')")
    page.wait_for("!document.querySelector('#live > div')")
    strong = "[...document.querySelectorAll('article.ah-assistant .ah-markdown strong')].map((each) => each.textContent)"
    assert page.run(strong) == ["Hel", "<b>page</b>"]
    # It goes on with the next turn of the session.
    server.alice.turn(session, model.script([steps.text("Again.")]))
    page.wait_for("document.querySelectorAll('article.ah-assistant').length === 2")


def addresses(server: Server, webhook: str) -> list[str]:
    """Every kind of page, with a session whose message is hostile."""
    session = server.alice.create("echo")
    server.alice.turn(session, HOSTILE)
    below = (
        *("", "sessions/", f"sessions/{session}/", f"sessions/{session}/export/", f"sessions/{session}/delete/"),
        *(
            "use/",
            "keys/",
            "keys/new/",
            "webhooks/",
            "webhooks/new/",
            f"webhooks/{webhook}/",
            "members/",
            "playground/",
            "audit/",
            "export/",
        ),
    )
    return [f"{server.origin()}/console/", *(f"{server.origin()}/console/alice/{path}" for path in below)]


def size(page: Page, width: int, scheme: str) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def test_pages_of_the_console_run_nothing_of_what_users_wrote_and_fit_a_phone(
    server: Server, page: Page, owner: tuple[str, str, str]
) -> None:
    size(page, 360, "light")
    for address in addresses(server, owner[2]):
        page.open(address)
        assert page.run("document.title") != "owned", address
        assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address
        assert page.run("document.querySelectorAll('h1').length") == 1, address


@pytest.mark.slow
def test_pages_of_the_console_have_no_serious_barrier(
    server: Server, page: Page, owner: tuple[str, str, str], tmp_path: Path
) -> None:
    axe = generators.axe(tmp_path)
    page.call("Page.setBypassCSP", enabled=True)
    for width, scheme in ((1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")):
        size(page, width, scheme)
        for address in addresses(server, owner[2]):
            page.open(address)
            page.run(f"{axe};1")
            found = page.run(
                "axe.run(document, {resultTypes: ['violations']}).then(result => JSON.stringify(result.violations"
                ".filter(each => ['serious', 'critical'].includes(each.impact)).map(each => [each.id, each.nodes[0].html])))"
            )
            assert json.loads(found) == [], (width, scheme, address)
