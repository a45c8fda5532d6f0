"""What the page says if the server refuses, or the person is signed out."""

from __future__ import annotations

import json

import pytest

from tests.e2e.browser import Browser
from tests.e2e.playground.person import ANSWER, Person, answering
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


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
    assert person.text("#status") == ""
    shown = "document.querySelectorAll('#entries .user').length"
    person.page.wait_for(f"{shown} === {before} && !document.querySelector('#send').disabled")


AWAY = """
{
  const original = window.fetch;
  window.fetch = (address, options) => window.away && String(address).includes('/aap/v3/')
    ? Promise.resolve(new Response('{"detail": "Away."}', {status: String(address).endsWith('/turns') ? window.away : 503}))
    : original(address, options);
}
"""


@pytest.mark.parametrize(("status", "left"), [(503, ""), pytest.param(422, "Away.", marks=pytest.mark.slow)])
def test_the_problem_of_an_outage_goes_with_it_and_another_stays(
    person: Person, model: ModelServer, status: int, left: str
) -> None:
    person.open()
    person.say(model.script([steps.text("So far, so good.")]))
    person.sees("The agent has finished.", "#status")
    person.page.run(AWAY)
    person.page.run(f"window.away = {status}")
    person.say("Keep me.")
    person.sees("Away.", "#problem")
    person.sees("The connection is interrupted", "#status")
    person.page.run("window.away = 0")
    person.sees("Connected again.", "#status")
    assert person.text("#problem") == left
    assert person.page.run("document.querySelector('#message').value") == "Keep me."


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
