"""CORS: responses to pages of other origins, also in a real browser.

The operator has listed one origin. Where there is no browser, what needs one is skipped, and says what to install.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sessions_app.aap.openapi.routes import routes
from tests.e2e import browser as browsers
from tests.e2e import generators
from tests.e2e import server as servers
from tests.e2e.browser import Browser, Page, ScriptError
from tests.e2e.client import TIMEOUT
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

VERSIONS = sorted(routes())
EXPOSED = {"retry-after", "location", "x-request-id", "x-turn-id", "ratelimit", "ratelimit-policy"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@dataclass(frozen=True)
class Site:
    """A server and two pages elsewhere."""

    server: Server
    listed: str
    foreign: str


@pytest.fixture(scope="module", params=servers.shapes())
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Site]:
    with browsers.blank_page() as listed, browsers.blank_page() as foreign:
        variables = {"AGENTHOST_CORS_ORIGINS": listed, **servers.DEFAULT_LEASES}
        directory = tmp_path_factory.mktemp(f"pages-{request.param}")
        with servers.running(request.param, directory, _model_server.url, environment=variables) as server:
            yield Site(server, listed, foreign)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = browsers.find()
    if path is None:
        pytest.skip(browsers.MISSING)
    with browsers.running(path) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.page() as page:
        yield page


# --- headers of every response ---


@dataclass(frozen=True)
class Asked:
    status: int
    method: str
    path: str
    body: str | None = None
    content_type: str = "application/json"
    key: bool = True


def turn(stream: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": stream})


def requests_of(version: int, session: str) -> list[Asked]:
    """One for each status and form that can be had from a server in good health."""
    base = f"/aap/v{version}"
    one = f"{base}/sessions/{session}" if version == 3 else f"{base}/session/{session}"
    turns = f"{one}/turns" if version == 3 else one
    creation = {"agent": {"name": "echo"}}
    if version < 3:
        creation["messages"] = [{"role": "user", "content": "hello"}]  # type: ignore[assignment]
    create = ("POST", f"{base}/sessions") if version == 3 else ("PUT", f"{base}/session")
    return [
        Asked(200, "GET", f"{base}/meta"),
        Asked(200, "GET", f"{base}/sessions"),
        Asked(201, *create, json.dumps(creation)),
        Asked(200, "GET", one),
        Asked(200, "POST", turns, turn("none")),
        Asked(200, "POST", turns, turn("delta")),
        Asked(200, "POST", turns, turn("message")),
        Asked(204, "GET", f"{one}/events/stream?stream=delta"),
        Asked(200, "POST", f"{one}/cancel", "{}"),
        Asked(400, "GET", f"{base}/sessions?after=nonsense"),
        Asked(400, "POST", turns, "{"),
        Asked(401, "GET", f"{base}/meta", key=False),
        Asked(404, "GET", f"{one}x"),
        Asked(404, "GET", f"{base}/nowhere"),
        Asked(405, "PATCH", f"{base}/meta", "{}"),
        Asked(415, "POST", turns, "{}", "text/plain"),
        Asked(422, "POST", turns, "{}"),
    ]


@pytest.mark.rule("A95", "A116")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_answer_may_be_read_by_a_listed_origin_and_no_other(site: Site, version: int) -> None:
    session = site.server.alice.create()
    for origin, allowed in ((site.listed, True), (site.foreign, False), ("null", False)):
        with httpx.Client(
            base_url=site.server.origin(), headers={"Origin": origin}, timeout=TIMEOUT, trust_env=False, verify=False
        ) as client:
            for asked in requests_of(version, session):
                headers = {"Authorization": f"Bearer {site.server.keys.alice}"} if asked.key else {}
                if asked.body is not None:
                    headers["Content-Type"] = asked.content_type
                answer = client.request(asked.method, asked.path, content=asked.body, headers=headers)
                assert answer.status_code == asked.status, f"{asked}: {answer.text}"
                check(answer, origin if allowed else None)
                preflight = client.options(asked.path, headers=PREFLIGHT)
                assert preflight.status_code == 204
                check(preflight, origin if allowed else None)
                assert ("Access-Control-Allow-Methods" in preflight.headers) is allowed


def check(answer: httpx.Response, origin: str | None) -> None:
    given = {name for name in answer.headers if name.startswith("access-control-")}
    # Also where nothing is allowed. Otherwise a cache could return the response to another origin.
    assert "origin" in answer.headers["Vary"].lower()
    if origin is None:
        assert not given
        return
    assert answer.headers["Access-Control-Allow-Origin"] == origin
    assert {one.strip().lower() for one in answer.headers["Access-Control-Expose-Headers"].split(",")} == EXPOSED
    assert "access-control-allow-credentials" not in given


@pytest.mark.rule("A95", "A93")
def test_a_413_is_readable_by_pages_of_other_origins(site: Site) -> None:
    headers = {"Origin": site.listed, "Authorization": f"Bearer {site.server.keys.alice}", "Content-Type": "application/json"}
    with httpx.Client(base_url=site.server.origin(), timeout=TIMEOUT, trust_env=False, verify=False) as client:
        answer = client.post("/aap/v3/sessions", headers=headers, content=b"x" * (16 * 1024 * 1024 + 1))
    assert answer.status_code == 413
    check(answer, site.listed)


def test_the_admin_is_no_other_origins_business(site: Site) -> None:
    with httpx.Client(base_url=site.server.origin(), headers={"Origin": site.listed}, trust_env=False, verify=False) as client:
        for answer in (client.get("/accounts/login/"), client.options("/admin/login/", headers=PREFLIGHT)):
            assert answer.status_code in (200, 204)
            assert not [name for name in answer.headers if name.startswith("access-control-")]


# --- a real browser ---

TALK = """
window.opened = null;
window.talk = (async () => {
  const {base, key, version, prompt} = GIVEN;
  const headers = {"Authorization": `Bearer ${key}`, "Content-Type": "application/json"};
  const send = (method, path, body) =>
    fetch(`${base}/aap/v${version}${path}`, {method, headers, body: body && JSON.stringify(body)});
  const agents = (await (await send("GET", "/meta")).json()).agents.map((agent) => agent.name);
  const turn = {messages: [{role: "user", content: prompt}], stream: "delta"};
  let answer, location = null;
  if (version === 3) {
    const created = await send("POST", "/sessions", {agent: {name: "echo"}});
    location = created.headers.get("Location");
    answer = await send("POST", `/sessions/${(await created.json()).sessionId}/turns`, turn);
  } else {
    answer = await send("PUT", "/session", {agent: {name: "echo"}, ...turn});
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    text += read.value;
    if (window.opened === null && text.includes("turn_start")) window.opened = text;
  }
  const refused = await send("GET", version === 3 ? "/sessions/none" : "/session/none");
  return {
    agents, location, text,
    status: answer.status,
    type: answer.headers.get("Content-Type"),
    turn: answer.headers.get("X-Turn-Id"),
    refused: {status: refused.status, id: refused.headers.get("X-Request-Id"), ...(await refused.json())},
  };
})();
window.talk.catch(() => {});
"""


def begin_talk(page: Page, site: Site, version: int, prompt: str) -> None:
    given = {"base": site.server.origin(), "key": site.server.keys.alice, "version": version, "prompt": prompt}
    page.run(f"{{ {TALK.replace('GIVEN', json.dumps(given))} }}; null")


@pytest.mark.rule("A95", "A53")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_of_a_listed_origin_makes_a_session_and_reads_its_stream_as_it_comes(
    site: Site, page: Page, model: ModelServer, version: int
) -> None:
    gate = f"browser-{site.server.shape}-{version}"
    prompt = model.script([steps.gate(gate), steps.text("Hello, ", "page.")])
    page.open(site.listed)
    begin_talk(page, site, version, prompt)
    # The page has received the beginning of the stream before the first output of the model.
    opened = page.wait_for("window.opened")
    assert "text_delta" not in opened
    model.open_gate(gate)
    talk = page.run("window.talk")
    assert "echo" in talk["agents"]
    assert (talk["status"], talk["type"]) == (200, "text/event-stream")
    assert talk["turn"].startswith("turn_")
    assert "".join(json.loads(line[6:])["delta"] for line in talk["text"].splitlines() if '{"delta"' in line) == "Hello, page."
    assert talk["text"].endswith('event: turn_stop\ndata: {"stopReason":"end_turn"}\n\n')
    assert ("session_start" in talk["text"]) is (version < 3)
    assert (talk["location"] is not None) is (version == 3)
    assert talk["refused"]["status"] == 404
    assert talk["refused"]["instance"] == talk["refused"]["id"]


@pytest.mark.rule("A95")
def test_a_page_of_another_origin_reads_nothing(site: Site, page: Page) -> None:
    page.open(site.foreign)
    begin_talk(page, site, 3, "hello")
    with pytest.raises(ScriptError, match="Failed to fetch"):
        page.run("window.talk")
    assert any("CORS policy" in complaint for complaint in page.complaints)


# --- the documentation ---


def click(page: Page, what: str) -> None:
    page.wait_for(f"document.querySelector({what!r})")
    page.run(f"document.querySelector({what!r}).click()")


def fill(page: Page, what: str, text: str) -> None:
    """As a person types: the page's own script listens to the event, not to the value."""
    page.wait_for(f"document.querySelector({what!r})")
    page.run(
        f"{{ const field = document.querySelector({what!r});"
        f" Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set.call(field, {json.dumps(text)});"
        " field.dispatchEvent(new Event('input', {bubbles: true})); }"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_documentation_shows_every_operation_and_loads_nothing_from_elsewhere(site: Site, page: Page, version: int) -> None:
    own = site.server.origin()
    document = httpx.get(f"{own}/docs/openapi-v{version}.json", timeout=60, trust_env=False, verify=False).json()
    page.open(f"{own}/docs/v{version}/")
    operations = sum(len(methods) for methods in document["paths"].values())
    page.wait_for(f"document.querySelectorAll('.opblock').length === {operations}")
    assert page.run("document.querySelector('.info .title').textContent").startswith(f"Agenthost: AAP version {version}")
    assert [address for address in page.asked if not address.startswith((f"{own}/", "data:"))] == []
    assert page.complaints == []


def test_try_it_out_in_the_documentation_works_with_a_key(site: Site, page: Page) -> None:
    page.open(f"{site.server.origin()}/docs/")
    click(page, ".authorize")
    fill(page, ".auth-container input", site.server.keys.alice)
    click(page, ".auth-container button[type=submit]")
    click(page, ".modal-ux .btn-done")
    click(page, "#operations-Agents-getMeta .opblock-summary-control")
    # Before the whole dialog is rendered, a click on the button may have no effect.
    page.wait_for("document.querySelector('#operations-Agents-getMeta .response .model-example')")
    click(page, "#operations-Agents-getMeta .execute")
    page.wait_for("document.querySelector('#operations-Agents-getMeta .live-responses-table .response-col_status')")
    answered = page.run("document.querySelector('#operations-Agents-getMeta .live-responses-table').innerText")
    assert "200" in answered
    assert "pilot" in answered
    # Nothing of the page's own was stopped by its policy, and the key is not kept.
    assert page.complaints == []
    assert page.run("localStorage.length + sessionStorage.length") == 0


# --- the admin ---

SIGN_IN = """
import django
django.setup()
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore
users = get_user_model().objects
user = users.filter(username="looker").first() or users.create_superuser("looker")
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
print(settings.SESSION_COOKIE_NAME, session.session_key)
"""


def test_a_search_without_results_leaves_no_hole_in_the_list_of_sessions(site: Site, page: Page) -> None:
    name, value = site.server.manage(code=SIGN_IN).split()
    origin = site.server.origin()
    page.call("Network.setCookie", name=name, value=value, url=origin)
    page.open(f"{origin}/admin/sessions_app/session/?q=sess_none")
    gap = page.run(
        "document.querySelector('#changelist .changelist-form-container').getBoundingClientRect().top"
        " - document.querySelector('#changelist-filter').getBoundingClientRect().bottom"
    )
    assert 0 <= gap < 40
    assert page.complaints == []


HOSTILE = (
    "# <script>document.title='owned'</script> **bold** ![x](http://127.0.0.1:9/pixel.png)"
    " <img src=x onerror=document.title='owned'> [go](javascript:document.title='owned')"
)
PAGES = ("", "sessions_app/session/?words=bold", "sessions_app/session/{row}/change/", "sessions_app/session/{row}/events/",
         "sessions_app/session/{row}/input/", "sessions_app/session/{row}/stop/", "sessions_app/apikey/",
         "sessions_app/apikey/add/", "password_change/")  # fmt: skip
ROW = """
import sys, django
django.setup()
from sessions_app.models import Session
print(Session.objects.get(public_id=sys.argv[1]).pk)
"""


def pages_of_the_admin(site: Site, page: Page) -> list[str]:
    """Sign in, and return the addresses of pages about a session with a hostile message."""
    name, value = site.server.manage(code=SIGN_IN).split()
    origin = site.server.origin()
    page.call("Network.setCookie", name=name, value=value, url=origin)
    session = site.server.alice.create("echo")
    site.server.alice.turn(session, HOSTILE)
    row = site.server.manage(session, code=ROW).strip()
    return [f"{origin}/admin/{path.format(row=row)}" for path in PAGES]


def test_pages_of_the_admin_run_nothing_of_what_users_wrote_and_load_nothing_from_elsewhere(site: Site, page: Page) -> None:
    for address in pages_of_the_admin(site, page):
        page.open(address)
        assert page.run("document.title") != "owned", address
        assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address
        assert page.complaints == [], address
    assert [asked for asked in page.asked if not asked.startswith((f"{site.server.origin()}/", "data:"))] == []


READS = """
import django
django.setup()
from sessions_app.models import AuditRecord
print(AuditRecord.objects.filter(action="transcript_read").count())
"""


def test_an_open_transcript_shows_a_running_turn_until_its_end(site: Site, page: Page, model: ModelServer) -> None:
    gate = f"live-{site.server.shape}"
    prompt = model.script([steps.text("Hel"), steps.gate(gate), steps.text("lo, <b>page</b>.")])
    name, value = site.server.manage(code=SIGN_IN).split()
    origin = site.server.origin()
    page.call("Network.setCookie", name=name, value=value, url=origin)
    session = site.server.alice.create("echo")
    row = site.server.manage(session, code=ROW).strip()
    before = int(site.server.manage(code=READS))
    with site.server.alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        page.open(f"{origin}/admin/sessions_app/session/{row}/change/")
        page.wait_for("document.querySelector('#streaming [data-kind=text]').textContent === 'Hel'")
        assert page.run("document.querySelector('.ah-turn .ah-badge').textContent") == "running"
        model.open_gate(gate)
        page.wait_for("document.querySelector('article.ah-assistant')")
    page.wait_for("document.querySelector('.ah-turn .ah-badge').textContent === 'done'")
    assert page.run("document.querySelector('article.ah-assistant .ah-markdown').textContent").strip() == "Hello, <b>page</b>."
    assert page.run("document.querySelector('#streaming').hidden")
    # The page goes on with the next turn of the session.
    site.server.alice.turn(session, model.script([steps.text("Again.")]))
    page.wait_for("document.querySelectorAll('.ah-turn').length === 2")
    page.wait_for("document.body.textContent.includes('Again.')")
    assert page.complaints == []
    assert int(site.server.manage(code=READS)) == before + 1


@pytest.mark.slow
def test_pages_of_the_admin_have_no_serious_barrier(site: Site, page: Page, tmp_path: Path) -> None:
    axe = generators.axe(tmp_path)
    addresses = pages_of_the_admin(site, page)
    page.call("Page.setBypassCSP", enabled=True)
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for address in addresses:
            page.open(address)
            page.run(f"{axe};1")
            found = page.run(
                "axe.run(document, {resultTypes: ['violations']}).then(result => JSON.stringify(result.violations"
                ".filter(each => ['serious', 'critical'].includes(each.impact)).map(each => [each.id, each.nodes[0].html])))"
            )
            assert json.loads(found) == [], (scheme, address)
