"""What a person types into the form of a call that waits stays, whatever makes the page show the call again."""

from __future__ import annotations

import json

import httpx
import pytest
from websockets.sync.client import connect

from tests.e2e.playground.person import Person
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

# Everything that can make the conversation show a call again, on the modules of the page themselves: each step changes the
# conversation as the session does it, and then reports the text, the focus and the caret of the field.
MODULES = """
(async () => {
  const base = '/static/agenthost/playground';
  const [{Conversation}, {ConversationView}, {make}] =
    await Promise.all(['conversation', 'view', 'dom'].map((name) => import(`${base}/${name}.js`)));
  const root = make('div'), conversation = new Conversation(), found = {};
  document.body.append(root);
  const view = new ConversationView(root, (call) => make('div', {}, make('input', {id: `typed-${call.id}`})));
  const block = (id) => ({type: 'tool_use', toolCallId: id, name: 'order_rope', input: {}});
  const asks = {role: 'assistant', content: [{type: 'text', text: 'May I?'}, block('first'), block('second')]};
  const user = (content) => ({role: 'user', content});
  const field = () => document.getElementById('typed-second');
  const check = (step, isAsking = true) => {
    view.show(conversation);
    found[step] = isAsking ? [field()?.value, document.activeElement === field(), field()?.selectionStart] : 'not asked';
  };
  const streamed = (id) => conversation.apply({event: 'tool_call', data: block(id)});
  conversation.load([user('Hello.'), asks]);
  view.show(conversation);
  field().value = 'too long';
  field().focus();
  field().setSelectionRange(3, 3);
  check('at first');
  conversation.load([user('Hello.'), asks]);
  check('the same history');
  conversation.load([asks]);
  check('a history with an entry less');
  conversation.load([user('Earlier.'), user('Hello.'), asks]);
  check('a history with more entries');
  conversation.load([user('Hello.'), {...asks, content: asks.content.slice(1)}]);
  check('a history with another text');
  conversation.load([user('Hello.'), {...asks, content: [...asks.content, block('third')]}]);
  check('a history with another call');
  conversation.load([user('Hello.'), asks, {role: 'tool', toolCallId: 'first', content: 'three metres'}]);
  check('a result of the call beside it');
  conversation.begin();
  check('a turn of another client', false);
  conversation.stop('tool_use');
  check('the end of that turn');
  conversation.begin();
  streamed('first');
  check('a stream that begins at the start of the turn', false);
  streamed('second');
  conversation.stop('tool_use');
  check('the end of that stream');
  conversation.decide('second', {shown: 'denied'});
  check('an answer under way', false);
  conversation.decide('second', null);
  check('an answer that was not taken');
  root.remove();
  return JSON.stringify(found);
})()
"""


def test_each_way_to_show_a_call_again_keeps_text_caret_and_focus(person: Person) -> None:
    person.open()
    found = json.loads(person.page.run(MODULES))
    assert found.pop("an answer that was not taken") == ["too long", True, 3]
    asked = {step: seen for step, seen in found.items() if seen != "not asked"}
    assert len(asked) == 9
    assert asked == {step: ["too long", True, 3] for step in asked}


HOLD = """
{
  const original = window.fetch;
  window.held = [];
  window.holding = null;
  window.fetch = async (address, options) => {
    const isRefused = window.refusing && String(address).endsWith('/turns');
    const response = isRefused ? new Response('{"detail": "Not now."}', {status: 422}) : await original(address, options);
    if (window.holding && String(address).endsWith(window.holding)) await new Promise((release) => window.held.push(release));
    return response;
  };
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "delta"])
def test_a_history_that_comes_late_takes_nothing_back(person: Person, model: ModelServer, mode: str) -> None:
    person.page.call("Page.addScriptToEvaluateOnNewDocument", source=HOLD)
    person.open(agent="pilot")
    person.click("#tools .tool label", "order_rope")
    person.fill("#mode", "none")
    # After an answer of this form the page reads the history, which takes longer than the person.
    person.page.run("window.holding = '/history?type=full'")
    person.say(model.script([steps.text("Hello.")]))
    person.page.wait_for("window.held.length")
    person.page.run("window.holding = null")
    person.fill("#mode", mode)
    person.say(model.script([steps.call("order_rope", {"metres": 3})], [steps.text("Then not.")]))
    person.page.wait_for("document.querySelector('.ask input')")
    person.page.run("document.querySelector('.ask input').value = 'no budget'")
    person.page.run("window.held[0](); new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    # The late history, and then the one that is read after the answer, have been shown.
    person.page.wait_for("document.querySelectorAll('#entries .entry').length === 4")
    assert person.page.run("document.querySelector('.ask input').value") == "no budget"
    person.click(".ask .button", "Deny")
    person.sees("Then not.")
    assert "Tool call denied: no budget" in person.text()


def rename(person: Person, session: str, title: str) -> None:
    """Give the session a title over AHP, as another client does."""
    key, origin = person.server.keys.alice, person.server.origin()
    authorization = {"Authorization": f"Bearer {key}"}
    uri = httpx.get(f"{origin}/api/sessions/{session}", headers=authorization).json()["uri"]
    with connect(origin.replace("http", "ws", 1) + "/ahp", additional_headers=authorization) as host:
        for number, (method, params) in enumerate(
            [
                ("initialize", {"protocolVersions": ["0.1.0"], "clientId": "titles"}),
                ("subscribe", {"resource": uri}),
            ]
        ):
            host.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            while (answer := json.loads(host.recv(timeout=60))).get("id") != number:
                pass
            assert "error" not in answer, answer
        action = {"type": "session/titleChanged", "session": uri, "title": title}
        host.send(json.dumps({"jsonrpc": "2.0", "method": "dispatchAction", "params": {"clientSeq": 1, "action": action}}))
        while title not in str(host.recv(timeout=60)):
            pass


@pytest.mark.slow
def test_the_second_pane_and_another_client_leave_what_is_typed(person: Person, model: ModelServer) -> None:
    person.open(agent="mate")
    person.click("#tools .tool label", "ask_user")
    person.say(model.script([steps.call("ask_user", {"questions": [{"id": "port", "kind": "text", "message": "Which port?"}]})]))
    person.page.wait_for("document.querySelector('.ask textarea')")
    person.page.run("document.querySelector('.ask textarea').value = 'Ki'; document.querySelector('.ask textarea').focus()")
    person.page.run("document.querySelector('#watching').checked = true")
    person.page.run("document.querySelector('#watching').dispatchEvent(new Event('change'))")
    person.sees("Which port?", "#ahp-state")
    # The button is the same element after each frame: between pressing and releasing it nothing replaces it.
    person.page.run(
        "window.pressed = [...document.querySelectorAll('#ahp-state button')].find((one) => one.textContent === 'Decline')"
    )
    frames = person.page.run("document.querySelector('#ahp-frames').textContent.length")
    person.page.run("document.querySelector('#ahp-frames').closest('details').open = true")
    session = person.page.run("location.hash.slice(1)")
    rename(person, session, "A better title")
    person.page.wait_for(f"document.querySelector('#ahp-frames').textContent.length > {frames}")
    person.sees("A better title", "#ahp-state")
    assert person.page.run("window.pressed.isConnected")
    assert person.page.run("[document.querySelector('.ask textarea').value, document.activeElement.tagName]") == [
        "Ki",
        "TEXTAREA",
    ]


@pytest.mark.slow
def test_options_that_are_typed_while_a_message_is_under_way_stay_if_it_is_refused(person: Person, model: ModelServer) -> None:
    person.page.call("Page.addScriptToEvaluateOnNewDocument", source=HOLD)
    person.open(agent="pilot")
    prompt = model.script([steps.text("Hello.")])
    person.say(prompt)
    person.sees("Hello.")
    person.page.wait_for("!document.querySelector('#send').disabled")
    person.page.run("window.holding = '/turns'; window.refusing = true")
    person.fill("#option-tone", "brief")
    person.page.run("document.querySelector('#option-tone').focus()")
    person.say("Refuse me.")
    person.page.wait_for("window.held.length")
    # The fields were made again when the message was sent.
    assert person.page.run("document.activeElement.id") == "option-tone"
    person.fill("#option-model_key", "sk-typed-meanwhile")
    person.page.run("window.held[0]()")
    person.sees("Not now.", "#problem")
    values = "['tone', 'model_key'].map((name) => document.querySelector(`#option-${name}`).value)"
    assert person.page.run(values) == ["brief", "sk-typed-meanwhile"]
    assert "sk-typed-meanwhile" not in person.page.run("document.documentElement.outerHTML")
    # Both are in the next message.
    person.page.run("window.holding = null; window.refusing = false")
    again = model.script([steps.text("Now.")])
    person.say(again)
    person.sees("Now.")
    assert model.wait_request(again).headers["authorization"] == "Bearer sk-typed-meanwhile"
    assert person.page.run(values) == ["brief", ""]


@pytest.mark.slow
def test_the_end_of_a_conversation_stays_in_view_when_the_second_pane_opens(person: Person, model: ModelServer) -> None:
    person.page.call("Emulation.setDeviceMetricsOverride", width=1280, height=700, deviceScaleFactor=1, mobile=False)
    person.open()
    person.say(model.script([steps.text("A sentence that takes more lines in a narrow pane. " * 40)]))
    person.sees("The agent has finished.", "#status")
    shown = "document.querySelector('#entries')"
    end = f"{shown}.scrollHeight - {shown}.scrollTop - {shown}.clientHeight < 5"
    person.page.wait_for(end)
    before = person.page.run(f"{shown}.scrollHeight")
    person.click("#watching")
    person.page.wait_for(f"{shown}.scrollHeight > {before}")
    person.page.wait_for(end)
