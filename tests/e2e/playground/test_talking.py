"""A person talks to agents: turns, tools, both panes, tokens, code to copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
from websockets.sync.client import connect

from tests.e2e.browser import Browser
from tests.e2e.playground.person import Person
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

DOT = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
"""A picture of one pixel."""


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


def test_the_second_pane_shows_a_session_whose_creator_chose_its_address(person: Person, model: ModelServer) -> None:
    key, origin = person.server.keys.alice, person.server.origin()
    uri = f"echo:/chosen-{person.server.shape}"
    with connect(origin.replace("http", "ws", 1) + "/ahp", additional_headers={"Authorization": f"Bearer {key}"}) as host:
        for number, (method, params) in enumerate(
            [
                ("initialize", {"protocolVersions": ["0.1.0"], "clientId": "chooser"}),
                ("createSession", {"session": uri, "provider": "echo"}),
            ]
        ):
            host.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            while (answer := json.loads(host.recv(timeout=60))).get("id") != number:
                pass
            assert "error" not in answer, answer
    found = httpx.get(f"{origin}/api/sessions", params={"agent": "echo"}, headers={"Authorization": f"Bearer {key}"}).json()[
        "sessions"
    ]
    person.open(session=found[0]["sessionId"])
    person.click("#watching")
    person.say(model.script([steps.text("Seen by both.")]))
    person.sees("Seen by both.")
    person.sees("Seen by both.", "#ahp-state")
    assert uri in person.page.run("document.querySelector('#ahp-frames').textContent")


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


def test_a_request_copied_as_code_runs_with_a_key(person: Person, model: ModelServer, tmp_path: Path) -> None:
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
    # In this order: a program that ended wrongly would disturb the next one.
    languages = ["curl", "Python", *(["TypeScript"] if shutil.which("node") else [])]
    for language in languages:
        for place, expected in (("/turns", '{"delta":"One."}'), ("POST /aap/v3/sessions", "sess_")):
            code, file = copied(language, place), tmp_path / "copied.mjs"
            # It has no types, so node needs no compiler.
            file.write_text(code)
            command = {"curl": ["sh", "-c", code], "Python": [sys.executable, "-c", code], "TypeScript": ["node", str(file)]}
            person.page.wait_for("!document.querySelector('#send').disabled")
            done = subprocess.run(command[language], env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert expected in done.stdout, f"{language}: {done.stderr}{done.stdout}"
    assert "fetch(" in copied("TypeScript", "/turns")
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
