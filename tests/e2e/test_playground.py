"""The console's playground in a real browser: a person talks to agents. All tests share one server and one browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import browser as browsers
from tests.e2e import generators
from tests.e2e.browser import Browser, Page
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

DOT = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
"""A picture of one pixel."""
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


def test_a_reload_in_the_second_step_of_a_turn_shows_each_step_once(person: Person, model: ModelServer) -> None:
    gate = f"steps-{person.server.shape}"
    person.open(agent="pilot")
    person.click("#tools .tool label", "calculator")
    person.click("#tools .tool label:has(:enabled)", "runs without asking")
    first = [steps.text("Step one."), steps.call("calculator", {"expression": "6*7"})]
    person.say(model.script(first, [steps.text("Step two,"), steps.gate(gate), steps.text(" the end.")]))
    person.sees("Step two,")
    person.page.call("Page.reload")
    person.page.wait_for("document.readyState === 'complete' && document.querySelector('#entries .entry')")
    person.sees("Step two,")
    parts = ("Step one.", "Step two,", "Result\n42", "calculator\n")
    # While the turn runs, the page shows the history and the stream; at its end, the history alone.
    assert [person.text().count(part) for part in parts] == [1, 1, 1, 1]
    model.open_gate(gate)
    person.sees("Step two, the end.")
    person.sees("The agent has finished.", "#status")
    assert [person.text().count(part) for part in parts] == [1, 1, 1, 1]


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


def test_a_person_sets_options_and_tools_and_answers_every_kind_of_call_in_each_mode(person: Person, model: ModelServer) -> None:
    person.open(agent="pilot")
    person.fill("#option-tone", "very brief")
    person.fill("#option-model_key", "sk-typed-canary")
    person.click("#tools .tool label", "calculator")
    person.click("#own-tool-sample")
    person.click("#own-tool button")
    person.fill("#own-name", "ask_a_human")
    person.click("#own-tool button", "Declare")
    calls = [
        steps.call("calculator", {"expression": "6*7"}),
        steps.call("look_up_order", {"number": "7"}),
        steps.call("ask_a_human", {"question": "why?"}),
    ]
    prompt = model.script(calls, [steps.text("All done.")])
    person.say(prompt)
    # The first tool of the person's own answers by itself; the others ask.
    person.sees("answered by this page, not sent yet")
    own = "[aria-label='Answer for ask_a_human']"
    person.page.run(f'document.querySelector("{own} textarea").value = "because"')
    person.click(f"{own} .button", "Answer")
    person.click(".ask .button", "Allow in this session")
    person.sees("All done.")
    for shown in ("allowed in this session", "answered by you", "because", "shipped yesterday", "42"):
        assert shown in person.text()
    first = model.wait_request(prompt)
    assert "Tone: very brief." in str(first.body["messages"][0])
    assert first.headers["authorization"] == "Bearer sk-typed-canary"
    assert "sk-typed-canary" not in person.page.run("document.documentElement.outerHTML")
    assert person.page.run("document.querySelector('#option-model_key').value") == ""
    assert "set; cannot be shown" in person.page.run("document.querySelector('#option-model_key').placeholder")
    # Trusted now, so it does not ask; the other forms of an answer show the same.
    for mode in ("message", "none"):
        person.fill("#mode", mode)
        person.say(model.script([steps.call("calculator", {"expression": "6*8"})], [steps.text(f"Again, by {mode}.")]))
        person.sees(f"Again, by {mode}.")
    assert person.text().count("48") == 2
    # A picture, as if it had been chosen from the device.
    person.page.run(
        f"{{ const bytes = Uint8Array.from(atob('{DOT}'), (letter) => letter.charCodeAt(0));"
        " const held = new DataTransfer(); held.items.add(new File([bytes], 'dot.gif', {type: 'image/gif'}));"
        " const field = document.querySelector('#picture-file'); field.files = held.files;"
        " field.dispatchEvent(new Event('change')); }"
    )
    person.page.wait_for("document.querySelector('#pictures img')")
    seen = model.script([steps.text("A dot.")])
    person.say(seen)
    person.sees("A dot.")
    assert "data:image/gif;base64,R0lG" in str(model.wait_request(seen).body["messages"][-1])
    assert person.page.run("document.querySelectorAll('.entry.user img').length") == 1
    # A denial, and what the server says of a bad picture's address.
    person.click("#tools .tool label", "order_rope")
    person.say(model.script([steps.call("order_rope", {"metres": 3})], [steps.text("Then not.")]))
    person.page.wait_for("document.querySelector('.ask input')")
    person.page.run("document.querySelector('.ask input').value = 'no budget'")
    person.click(".ask .button", "Deny")
    person.sees("Then not.")
    assert "Tool call denied: no budget" in person.text()


def test_what_a_person_types_stays_when_another_client_answers(person: Person, model: ModelServer) -> None:
    person.open(agent="pilot")
    for tool in ("calculator", "order_rope"):
        person.click("#tools .tool label", tool)
    calls = [steps.call("calculator", {"expression": "6*7"}), steps.call("order_rope", {"metres": 3})]
    person.say(model.script(calls, [steps.text("Both decided.")]))
    other = "[aria-label='Permission for order_rope'] input"
    person.page.wait_for(f'document.querySelector("{other}")')
    person.page.run(f'document.querySelector("{other}").value = "too long"')
    session = person.page.run("location.hash.slice(1)")
    call = next(block for block in person.server.alice.history(session)[-1]["content"] if block.get("name") == "calculator")
    person.server.alice.turn(session, {"role": "tool_permission", "toolCallId": call["toolCallId"], "granted": True})
    person.sees("42")
    person.page.wait_for("!document.querySelector(\"[aria-label='Permission for calculator']\")")
    person.click("[aria-label='Permission for order_rope'] .button", "Deny")
    person.sees("Both decided.")
    assert "Tool call denied: too long" in person.text()


def test_a_question_of_an_agent_is_answered_in_the_conversation(person: Person, model: ModelServer) -> None:
    person.open(agent="mate")
    person.click("#watching")
    person.click("#tools .tool label", "ask_user")
    questions = [{"id": "port", "kind": "text", "message": "Which port?"}]
    prompt = model.script([steps.call("ask_user", {"questions": questions})], [steps.text("Then to Kiel.")])
    person.say(prompt)
    person.sees("Which port?")
    person.sees("Which port?", "#ahp-state")
    person.page.run("document.querySelector('.ask textarea').value = 'Kiel'; document.querySelector('.ask textarea').focus()")
    person.click(".ask .button", "Answer")
    person.sees("Then to Kiel.")
    # The keyboard's focus is not lost with the form.
    assert person.page.run("document.activeElement.id") == "message"
    person.page.wait_for("!document.querySelector('#ahp-state').innerText.includes('Decline')")


def test_a_second_pane_shows_the_session_over_ahp_and_both_act(person: Person, model: ModelServer) -> None:
    person.open(agent="pilot")
    person.click("#watching")
    person.click("#tools .tool label", "calculator")
    person.say(model.script([steps.thinking("Hm."), steps.call("calculator", {"expression": "6*7"})], [steps.text("It is 42.")]))
    # The calls ask in both panes. What one answers, the other shows.
    person.page.wait_for("document.querySelector('#entries .ask')")
    person.click("#ahp-state .call button", "Allow once")
    person.sees("It is 42.")
    person.sees("It is 42.", "#ahp-state")
    person.sees("complete", "#ahp-state")
    gate = f"panes-{person.server.shape}"
    prompt = model.script([steps.text("Said "), steps.gate(gate), steps.text("over AHP.")])
    person.page.wait_for("!document.querySelector('#ahp-send').disabled")
    person.fill("#ahp-message", prompt)
    person.page.run("document.querySelector('#ahp-form').requestSubmit()")
    # The message of another client appears at once, and not only when the turn has ended.
    person.sees(prompt)
    person.sees("Said")
    model.open_gate(gate)
    person.sees("Said over AHP.")
    person.sees("Said over AHP.", "#ahp-state")
    assert person.page.run("document.querySelector('#ahp-unfolded').hidden")
    assert "aht_" not in person.page.run("document.documentElement.outerHTML")


def test_a_request_copied_as_code_runs_with_a_key(person: Person, model: ModelServer) -> None:
    person.open(agent="pilot")
    person.fill("#option-model_key", "sk-typed-canary")
    prompt = model.script([steps.text("One.")])
    person.say(prompt)
    person.sees("One.")

    def copied(language: str, place: str) -> str:
        """The code of the request to this place, as the page copies it."""
        all_of_them = "[...document.querySelectorAll('#requests li')]"
        one = f"{all_of_them}.find((one) => one.querySelector('code').textContent.endsWith({place!r}))"
        person.page.wait_for(one)
        person.page.run(f"[...{one}.querySelectorAll('button')].find((one) => one.textContent.startsWith('{language}')).click()")
        return str(person.page.wait_for(f"{one}.querySelector('pre').textContent"))

    environment = {**os.environ, "AGENTHOST_KEY": person.server.keys.alice}
    commands = {"curl": ["sh", "-c", copied("curl", "/turns")], "Python": [sys.executable, "-c", copied("Python", "/turns")]}
    assert "fetch(" in copied("TypeScript", "/turns")
    for command in commands.values():
        person.page.wait_for("!document.querySelector('#send').disabled")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert '{"delta":"One."}' in done.stdout, done.stderr + done.stdout
    assert "YOUR MODEL_KEY" in copied("curl", "POST /aap/v3/sessions")
    everything = person.page.run("document.querySelector('#requests').textContent")
    for secret in ("aht_", "sk-typed-canary", person.server.keys.alice):
        assert secret not in everything


END_TOKENS = """
import django
django.setup()
from django.utils import timezone
from sessions_app.models import AccessToken
print(AccessToken.objects.filter(member__isnull=False).update(revoked_at=timezone.now()))
"""


def test_a_token_that_ends_in_mid_answer_is_replaced_without_a_word(person: Person, model: ModelServer) -> None:
    gate = f"token-{person.server.shape}"
    person.open()
    person.click("#watching")
    person.say(model.script([steps.text("Before, "), steps.gate(gate), steps.text("after.")]))
    person.sees("Before,")
    person.sees("Before,", "#ahp-state")
    minted = sum("/playground/token/" in address for address in person.page.asked)
    person.server.manage(code=END_TOKENS)
    # Both connections end and come back before the rest is said.
    person.page.wait_for("document.querySelector('#ahp-frames').textContent.includes('\"reconnect\"')")
    model.open_gate(gate)
    person.sees("Before, after.")
    person.sees("Before, after.", "#ahp-state")
    assert sum("/playground/token/" in address for address in person.page.asked) > minted
    assert person.text("#problem") == ""
    # A request that was under way with the old token is refused and sent again, which the browser reports by itself.
    person.page.complaints = [line for line in person.page.complaints if "401" not in line]


# --- Markdown ---

MARKDOWN = {
    "Hi **b** _i_ ~~d~~ `c*d` `x` snake_case_word 2*3*4 \\*no\\*": "<p>Hi <strong>b</strong> <em>i</em> <del>d</del>"
    " <code>c*d</code> <code>x</code> snake_case_word 2*3*4 *no*</p>",
    "<b onclick=x>&amp;</b>": "<p>&lt;b onclick=x&gt;&amp;amp;&lt;/b&gt;</p>",
    "# a #\ntext\nmore": "<h3>a</h3><p>text<br>more</p>",
    "1. one\n2. two\n   - sub\n\n   more\n3. three": "<ol><li>one</li><li>two<ul><li>sub</li></ul><p>more</p></li>"
    "<li>three</li></ol>",
    "> q\n> > r\n\n---": "<blockquote><p>q</p><blockquote><p>r</p></blockquote></blockquote><hr>",
    "```py\nx = '<'\n```\nafter": "<pre tabindex=\"0\"><code>x = '&lt;'</code></pre><p>after</p>",
    "```\nnot closed": '<pre tabindex="0"><code>not closed</code></pre>',
    "|a|b|\n|-|:-:|\n|1|`2`|3|": '<div class="scrolling" tabindex="0"><table><thead>'
    "<tr><th>a</th><th>b</th></tr></thead>"
    "<tbody><tr><td>1</td><td><code>2</code></td></tr></tbody></table></div>",
    "[a](javascript:x) [b](/c)": "<p><span>a</span> <span>b</span></p>",
}
LONG = (
    "*",
    "* ",
    "[",
    "`a",
    "_a",
    ">",
    "|a",
    "[a](http://x.y)",
    "![a](",
    "~~a",
    "<http://",
    "a\n",
    "**a",
    "```\n",
    "- a\n",
    "**_`[~~",
)


def test_markdown_is_shown_as_people_expect_and_long_texts_do_not_stop_the_page(person: Person) -> None:
    person.page.open(f"{person.server.origin()}/console/alice/playground/")
    load = "import('/static/agenthost/playground/markdown.js').then(({markdown}) =>"
    shown = person.page.run(
        f"{load} {json.dumps(list(MARKDOWN))}.map((text) =>"
        " { const parent = document.createElement('div'); parent.append(markdown(text)); return parent.innerHTML; }))"
    )
    assert dict(zip(MARKDOWN, shown, strict=True)) == MARKDOWN
    long = [*LONG, "|a" * 200 + "|\n" + "|-" * 200 + "|\n" + "|b\n"]
    took = person.page.run(
        f"{load} {json.dumps(long)}.map((part) => {{"
        " const text = part.repeat(100000 / part.length); const began = performance.now();"
        " markdown(text); return performance.now() - began; }))"
    )
    # Milliseconds; a text in quadratic time takes minutes.
    assert max(took) < 10_000, dict(zip(long, took, strict=True))


# --- what a server may answer, without a server that does ---

ANSWER = """
const original = window.fetch;
window.fetch = (address, options) => {
  for (const [part, status, body, headers] of ANSWERS) {
    if (String(address).includes(part)) {
      const known = {"Content-Type": "application/json", ...headers};
      return Promise.resolve(new Response(JSON.stringify(body), {status, headers: known}));
    }
  }
  return original(address, options);
};
"""


def answering(person: Person, *answers: tuple[str, int, object, dict[str, str]]) -> None:
    """Answer requests whose address contains a text, instead of the server, from the next page on."""
    source = ANSWER.replace("ANSWERS", json.dumps(answers))
    person.page.call("Page.addScriptToEvaluateOnNewDocument", source=f"{{ {source} }}")


def test_the_page_says_what_to_do_without_agents(person: Person) -> None:
    answering(person, ("/meta", 200, {"version": 3, "agents": []}, {}))
    person.page.open(f"{person.server.origin()}/console/alice/playground/")
    person.sees("This tenant has no agents.", "#empty")
    assert person.page.run("document.querySelector('#send').disabled")


@pytest.mark.parametrize(
    ("place", "status", "detail", "said"),
    [
        ("/turns", 429, "5 turns per minute.", "A limit is reached: 5 turns per minute. Try again in 7 s."),
        ("/turns", 409, "A turn is already running in this session.", "A turn is running in this session already."),
        ("/turns", 422, "messages[0]: too long.", "messages[0]: too long."),
        ("/aap/v3/sessions", 503, "Not ready.", "Not ready."),
    ],
)  # fmt: skip
def test_a_refused_message_comes_back_to_be_sent_again(
    person: Person, model: ModelServer, place: str, status: int, detail: str, said: str
) -> None:
    person.open()
    before = int(place == "/turns")
    if before:
        person.say(model.script([steps.text("So far, so good.")]))
        person.sees("So far, so good.")
        person.page.wait_for("!document.querySelector('#send').disabled")
    source = ANSWER.replace("ANSWERS", json.dumps([(place, status, {"detail": detail, "status": status}, {"Retry-After": "7"})]))
    person.page.run(f"{{ {source} }}")
    person.say("Keep me.")
    person.sees(said, "#problem")
    assert person.page.run("document.querySelector('#message').value") == "Keep me."
    shown = "document.querySelectorAll('#entries .user').length"
    person.page.wait_for(f"{shown} === {before} && !document.querySelector('#send').disabled")


def test_a_person_who_is_signed_out_is_led_to_the_sign_in_and_back(person: Person) -> None:
    person.page.call("Network.clearBrowserCookies")
    name, value = "sessionid", "gone"
    person.page.call("Network.setCookie", name=name, value=value, url=person.server.origin())
    person.page.open(f"{person.server.origin()}/console/alice/playground/")
    assert "/accounts/login/?next=/console/alice/playground/" in person.page.run("location.href")


def test_a_page_whose_person_has_signed_out_says_so(
    server: Server, browser: Browser, cookies: dict[str, tuple[str, str]], model: ModelServer
) -> None:
    with browser.page() as page:
        left = Person(server, page, cookies["owner"])
        left.open()
        page.call("Network.clearBrowserCookies")
        # As if the token had ended.
        source = ANSWER.replace("ANSWERS", json.dumps([("/aap/v3/sessions", 401, {"detail": "no"}, {})]))
        page.run(f"{{ {source} }}")
        left.say("Hello?")
        left.sees("You are signed out.", "#problem")
        assert page.run("document.querySelector('#problem a').href").startswith(f"{server.origin()}/accounts/login/?next=")


# --- hostile content ---

SCRIPT = "document.title = 'owned'"
EVIL = (
    f'"><script>{SCRIPT}</script><img src=x onerror="{SCRIPT}"><svg onload="{SCRIPT}"></svg><style>*{{display:none}}</style>'
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'></iframe>{{{{constructor.constructor('{SCRIPT}')()}}}}\u202egnp.exe"
)
EVIL_MARKDOWN = (
    f"# {EVIL}\n\n[go](javascript:{SCRIPT.replace(' ', '')})"
    f" [data](data:text/html,<script>{SCRIPT}</script>)"
    " ![x](http://127.0.0.1:9/pixel.png) ![y](javascript:alert)"
    f" <javascript:{SCRIPT.replace(' ', '')}> <b onclick={SCRIPT}>b</b>\n\n"
    f"```html onload={SCRIPT}\n{EVIL}\n```\n\n| {EVIL} | b |\n|---|---|\n| [c](vbscript:x) | <u>d</u> |\n\n- {EVIL}\n> {EVIL}\n"
)
PICTURES = (
    "javascript:alert(1)",
    "http://127.0.0.1:9/pixel.png",
    "https://tracker.example/pixel.png",
    "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+",
    f"data:text/html,<script>{SCRIPT}</script>",
    f'data:image/png;base64,x" onerror="{SCRIPT}',
)


def hostile_agent() -> dict[str, object]:
    tool = {"name": EVIL, "title": EVIL, "description": EVIL, "parameters": {"type": "object", EVIL: EVIL}}
    options = [
        {"type": "text", "name": EVIL, "title": EVIL, "description": EVIL, "default": EVIL},
        {"type": "select", "name": "choice", "title": EVIL, "options": [EVIL, "other"], "default": EVIL},
        {"type": "secret", "name": "secret", "title": EVIL, "description": EVIL, "default": ""},
    ]
    capabilities: dict[str, object] = {
        "history": {"full": {}}, "stream": {"delta": {}, "none": {}},
        "application": {"tools": {}}, "image": {"data": {}, "http": {}},
    }  # fmt: skip
    return {
        "name": EVIL, "title": EVIL, "version": "1.0.0", "description": EVIL, "tools": [tool], "options": options,
        "capabilities": capabilities,
    }  # fmt: skip


def hostile_history() -> list[object]:
    calls = [{"type": "tool_use", "toolCallId": f"{EVIL}{number}", "name": EVIL, "input": {EVIL: EVIL}} for number in range(3)]
    return [
        {"role": "system", "content": EVIL},
        {
            "role": "user",
            "content": [{"type": "text", "text": EVIL_MARKDOWN}, *({"type": "image", "url": url} for url in PICTURES)],
        },
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": EVIL}, {"type": "text", "text": EVIL_MARKDOWN}, *calls],
        },
        {"role": "tool", "toolCallId": f"{EVIL}0", "content": EVIL},
        {
            "role": "tool",
            "toolCallId": f"{EVIL}1",
            "content": [{"type": "text", "text": EVIL}, {"type": "image", "url": PICTURES[3]}],
        },
    ]


def nothing_ran(page: Page) -> None:
    assert page.run("document.title") != "owned"
    inside = "#playground"
    assert (
        page.run(f"document.querySelectorAll('{inside} :is(script, iframe, object, embed, svg, style, link, base, b, u)').length")
        == 0
    )
    assert page.run(f"[...document.querySelectorAll('{inside} *')].flatMap((one) => [...one.attributes]).filter((one) =>"
                    " one.name.startsWith('on') || one.name === 'style' || one.name === 'srcdoc').length") == 0  # fmt: skip
    links = page.run(f"[...document.querySelectorAll('{inside} a')].map((one) => one.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    assert set(page.run(f"[...document.querySelectorAll('{inside} img')].map((one) => one.src.slice(0, 11))")) <= {"data:image/"}


def test_nothing_that_agents_and_users_write_runs_or_is_loaded(person: Person) -> None:
    shown = {
        "sessionId": "sess_evil",
        "agent": {"name": EVIL, "options": {EVIL: EVIL, "secret": "***"}, "tools": [{"name": EVIL}]},
        "tools": [{"name": "mine", "description": EVIL, "parameters": {EVIL: EVIL}}],
    }
    answering(
        person,
        ("/meta", 200, {"version": 3, "agents": [hostile_agent()]}, {}),
        ("/history", 200, {"history": {"full": hostile_history()}}, {}),
        ("/events/stream", 422, {"detail": EVIL, "errors": [{"pointer": EVIL, "detail": EVIL}]}, {}),
        ("/turns", 422, {"detail": EVIL}, {}),
        ("/sessions/sess_evil", 200, shown, {}),
        ("/sessions?", 200, {"sessions": [shown]}, {}),
    )
    person.page.open(f"{person.server.origin()}/console/alice/playground/#sess_evil")
    person.sees("owned")
    person.sees("owned", "#problem")
    # The call that is open asks, by the tool's hostile name.
    person.page.wait_for("document.querySelector('.ask')")
    nothing_ran(person.page)
    person.say(EVIL_MARKDOWN)
    person.page.wait_for("document.querySelector('#message').value")
    person.page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    person.page.run("document.querySelectorAll('#requests button').forEach((one) => one.click())")
    nothing_ran(person.page)


def test_hostile_words_of_a_model_run_nowhere_in_either_pane(person: Person, model: ModelServer) -> None:
    person.open(agent="pilot")
    person.click("#watching")
    person.click("#own-tool-sample")
    person.page.run(f"document.querySelector('#own-answer').value = {json.dumps(EVIL)}")
    person.page.run(f"document.querySelector('#own-description').value = {json.dumps(EVIL)}")
    person.click("#own-tool button", "Declare")
    calls = [
        steps.thinking(EVIL),
        steps.text(EVIL_MARKDOWN),
        steps.call("look_up_order", {EVIL: EVIL}),
        steps.call(EVIL[:60], {"a": EVIL}),
    ]
    person.say(model.script(calls, [steps.text(EVIL_MARKDOWN, "The end.")]))
    person.sees("The end.")
    person.sees("The end.", "#ahp-state")
    person.page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    nothing_ran(person.page)


@pytest.mark.slow
def test_the_playground_has_no_serious_barrier(person: Person, model: ModelServer, tmp_path: Path) -> None:
    axe = generators.axe(tmp_path)
    person.page.call("Page.setBypassCSP", enabled=True)
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
        person.page.call("Emulation.setDeviceMetricsOverride", width=width, height=850, deviceScaleFactor=1, mobile=width < 600)
        person.page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        person.open(agent="pilot")
        person.page.call("Page.reload")
        person.open(agent="pilot")
        person.click("#tools .tool label", "calculator")
        person.click("#own-tool-sample")
        person.click("#own-tool button", "Declare")
        if not person.page.run("document.querySelector('#watching').checked"):
            person.click("#watching")
        text = "# Title\n\nSome [link](https://example.com) and `code`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```"
        person.say(model.script([steps.thinking("Hm."), steps.text(text), steps.call("calculator", {"expression": "1"})]))
        person.page.wait_for("document.querySelector('#entries .ask') && document.querySelector('#ahp-state .call button')")
        person.page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert person.page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (width, scheme)
        person.page.run(f"{axe};1")
        found = person.page.run(
            "axe.run(document, {resultTypes: ['violations']}).then(result => JSON.stringify(result.violations"
            ".filter(each => ['serious', 'critical'].includes(each.impact)).map(each => [each.id, each.nodes[0].html])))"
        )
        assert json.loads(found) == [], (width, scheme)


FIXTURES = ROOT.parent / "shared" / "ahp" / "reducer-fixtures"


@pytest.mark.skipif(not FIXTURES.exists(), reason=f"needs the protocol's reducer fixtures in {FIXTURES}")
def test_the_pages_own_reducers_pass_the_protocols_cases(person: Person) -> None:
    cases = [json.loads(path.read_text()) for path in sorted(Path(FIXTURES).glob("*.json"))]
    cases = [case for case in cases if case["reducer"] == "session"]
    assert len(cases) > 50
    person.page.open(f"{person.server.origin()}/console/alice/playground/")
    folded = person.page.run(
        "import('/static/agenthost/playground/ahp_reducers.js').then(({reduceSession}) =>"
        f" {json.dumps(cases)}.map((each) =>"
        " each.actions.reduce((state, action) => reduceSession(state, action, 9999), each.initial)))"
    )
    for case, state in zip(cases, folded, strict=True):
        assert without_nulls(state) == without_nulls(case["expected"]), case["description"]


def without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
