"""What users and agents write: Markdown, hostile content, the folded states of AHP, barriers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e import generators
from tests.e2e.browser import Page
from tests.e2e.playground.person import Person, answering
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

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
