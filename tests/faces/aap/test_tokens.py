"""Short-lived tokens over HTTP: minting at /api/tokens, and use over AAP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import URLPattern
from pytest_django import Settings

from sessions_app.aap.management import openapi, operations, urls
from sessions_app.core.tenancy import keys
from sessions_app.models import ApiKey
from tests.faces.aap.conftest import Person, key_of, pointers, problem
from tests.faces.aap.test_key_ends import KEY_ENDED, _rest
from tests.faces.aap.test_sse import chunks

APP = "https://app.example.com"


def api(person: Person) -> Person:
    return Person(person.key, "/api")


def minted(person: Person, session: str, **more: Any) -> dict[str, Any]:
    response = api(person).post("/tokens", {"session": session, **more})
    assert response.status_code == 201, response.content
    assert response["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json()
    assert response["Location"] == f"/api/tokens/{found['id']}"
    return found


@pytest.fixture
def allowed(settings: Settings) -> None:
    settings.AGENTHOST_CORS_ORIGINS = [APP]


@pytest.mark.parametrize("path", ["/sessions/{}", "/sessions/{}/history?type=full", "/sessions/{}/events/stream?stream=delta"])
def test_a_token_reads_its_session_and_no_other_one(alice: Person, path: str) -> None:
    own, other = alice.create(), alice.create()
    browser = Person(minted(alice, own)["token"])
    assert browser.get(path.format(own)).status_code in (200, 204)
    problem(browser.get(path.format(other)), 404)
    assert [each["sessionId"] for each in browser.get("/sessions").json()["sessions"]] == [own]


def test_a_token_acts_in_its_session_and_no_other_one(alice: Person) -> None:
    own, other = alice.create(), alice.create()
    browser = Person(minted(alice, own)["token"])
    assert browser.turn(own).status_code == 200
    problem(browser.turn(other), 404)
    problem(browser.post(f"/sessions/{other}/cancel"), 404)
    problem(browser.delete(f"/sessions/{other}"), 404)
    assert "create sessions" in problem(browser.post("/sessions", {"agent": {"name": "pilot"}}), 403)["detail"]


def test_a_cursor_of_the_key_shows_a_token_no_other_session(alice: Person) -> None:
    own = alice.create()
    for _ in range(51):
        alice.create()
    browser = Person(minted(alice, own)["token"])
    after = alice.get("/sessions").json()["next"]
    shown = [each["sessionId"] for each in browser.get(f"/sessions?after={after}").json()["sessions"]]
    assert shown in ([], [own])


def test_a_reading_token_changes_nothing(alice: Person) -> None:
    own = alice.create()
    browser = Person(minted(alice, own, scopes=["sessions:read"])["token"])
    assert "sessions:write" in problem(browser.turn(own), 403)["detail"]
    problem(browser.delete(f"/sessions/{own}"), 403)
    assert alice.get(f"/sessions/{own}").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": APP}, 200),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_a_token_for_an_origin_is_refused_from_elsewhere(
    alice: Person, allowed: None, headers: dict[str, str], status: int
) -> None:
    own = alice.create()
    browser = Person(minted(alice, own, origin=APP)["token"])
    response = browser.get(f"/sessions/{own}", **headers)
    assert response.status_code == status
    if status == 403:
        assert "another origin" in problem(response, 403)["detail"]


def test_the_servers_own_pages_send_no_origin_with_get(alice: Person) -> None:
    own = alice.create()
    browser = Person(minted(alice, own, origin="http://testserver")["token"])
    assert browser.get(f"/sessions/{own}", **{"Sec-Fetch-Site": "same-origin", "Host": "testserver"}).status_code == 200
    problem(browser.get(f"/sessions/{own}"), 403)


def test_an_origin_that_cannot_read_the_answers_is_refused_at_minting(alice: Person, allowed: None) -> None:
    response = api(alice).post("/tokens", {"session": alice.create(), "origin": "https://other.example.com"})
    assert pointers(response) == {"/origin"}
    assert "AGENTHOST_CORS_ORIGINS" in response.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({}, {"/session"}),
        ({"session": 7}, {"/session"}),
        ({"session": "OWN", "seconds": 5}, {"/seconds"}),
        ({"session": "OWN", "seconds": "600"}, {"/seconds"}),
        ({"session": "OWN", "scopes": ["*"]}, {"/scopes"}),
        ({"session": "OWN", "origin": "app"}, {"/origin"}),
    ],
)
def test_a_bad_request_is_refused_by_name(alice: Person, body: dict[str, Any], places: set[str]) -> None:
    own = alice.create()
    sent = {name: own if value == "OWN" else value for name, value in body.items()}
    assert pointers(api(alice).post("/tokens", sent)) == places


def test_tokens_are_minted_for_sessions_that_the_key_sees(alice: Person, bob: Person) -> None:
    own = alice.create()
    problem(api(bob).post("/tokens", {"session": own}), 404)
    problem(api(alice).post("/tokens", {"session": "sess_nothing"}), 404)
    limited = Person(key_of("alice", allowed=["bare"]))
    problem(api(limited).post("/tokens", {"session": own}), 404)


def test_a_token_mints_lists_and_revokes_no_other_token(alice: Person) -> None:
    own = alice.create()
    first, second = minted(alice, own), minted(alice, own)
    browser = Person(first["token"], "/api")
    problem(browser.post("/tokens", {"session": own}), 403)
    problem(browser.get("/tokens"), 403)
    problem(browser.delete(f"/tokens/{second['id']}"), 404)
    listed = api(alice).get("/tokens").json()["tokens"]
    assert {each["id"] for each in listed} == {first["id"], second["id"]}
    assert not any("token" in each for each in listed)


def _revoke_key(person: Person, _token: str) -> None:
    keys.mark_revoked(ApiKey.objects.select_related("tenant").get(digest=keys.digest_of(person.key or "")), actor="the tests")


def _revoke_token(person: Person, token: str) -> None:
    assert api(person).delete(f"/tokens/{token}").status_code == 204


@pytest.mark.parametrize("end", [_revoke_key, _revoke_token])
async def test_an_open_stream_ends_with_its_token_or_its_key(alice: Person, end: Callable[[Person, str], None]) -> None:
    own = await asyncio.to_thread(alice.create)
    token = await asyncio.to_thread(minted, alice, own)
    browser = Person(token["token"])
    stream = chunks(await asyncio.to_thread(browser.get, f"/sessions/{own}/events/stream?stream=delta&follow=true"))
    await anext(stream)
    await asyncio.to_thread(end, alice, token["id"])
    assert (await _rest(stream)).endswith(KEY_ENDED)
    problem(await asyncio.to_thread(browser.get, f"/sessions/{own}"), 401)


def test_no_log_line_has_the_token(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    own = alice.create()
    token = minted(alice, own)["token"]
    Person(token).get(f"/sessions/{own}")
    assert token not in caplog.text
    assert "token_minted" in caplog.text


def test_another_address_below_api_is_a_problem_document(alice: Person) -> None:
    problem(api(alice).get("/nothing"), 404)
    problem(Person(None, "/api").get("/tokens"), 401)


def test_the_openapi_document_has_the_served_addresses_and_methods() -> None:
    served = set()
    for route in urls.ROUTES:
        assert isinstance(route, URLPattern)
        address = "/api/" + str(route.pattern).replace("<str:", "{").replace("<int:", "{").replace(">", "}")
        view: Any = route.callback
        served |= {
            (name.upper(), address) for name in ("get", "post", "put", "patch", "delete") if hasattr(view.view_class, name)
        }
    assert served == set(operations.OPERATIONS)
    document = json.loads(openapi.document())
    assert {(method.upper(), path) for path, methods in document["paths"].items() for method in methods} == served
    assert {"NewToken", "MintedToken", "Problem"} <= set(document["components"]["schemas"])
