"""The documentation's pages: they load everything from this server."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from sessions_app.aap.openapi.routes import routes

VERSIONS = sorted(routes())


@pytest.fixture
def client() -> Client:
    return Client()


def test_the_newest_version_is_shown_first(client: Client) -> None:
    page = client.get("/docs/")
    assert page.status_code == 200
    assert "AAP version 3" in page.content.decode()
    assert page.content == client.get("/docs/v3/").content


def test_the_address_without_its_slash_leads_there(client: Client) -> None:
    assert client.get("/docs", follow=True).redirect_chain == [("/docs/", 302)]


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_on_a_page_is_loaded_from_this_server(client: Client, version: int) -> None:
    page = client.get(f"/docs/v{version}/").content.decode()
    loaded = re.findall(r'(?:src|href|data-document)="([^"]*)"', page)
    assert len(loaded) > 8
    for address in loaded:
        assert re.match(r"/(?!/)", address), address
        answer = client.get(address)
        assert answer.status_code == 200, address
    assert not re.search(r"<script>|<style|\son\w+=|style=", page), "no policy would let these run"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_may_load_and_run_nothing_else(client: Client, version: int) -> None:
    policy = client.get(f"/docs/v{version}/").headers["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy


@pytest.mark.parametrize("version", VERSIONS)
def test_the_document_is_json_and_names_the_versions_own_base(client: Client, version: int) -> None:
    answer = client.get(f"/docs/openapi-v{version}.json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(answer.content)["servers"] == [{"url": f"/aap/v{version}"}]


@pytest.mark.parametrize("path", ["/docs/v4/", "/docs/openapi-v4.json", "/docs/nowhere", "/docs/v0/"])
def test_a_version_that_is_not_served_has_no_page(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/docs/", "/docs/openapi-v3.json"])
def test_pages_allow_only_get_and_head(client: Client, path: str) -> None:
    assert client.post(path).status_code == 405
    assert client.head(path).status_code == 200
