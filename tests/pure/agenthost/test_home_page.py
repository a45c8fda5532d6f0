"""The pages / and /admin."""

from __future__ import annotations

from django.test import Client

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def test_a_browser_is_shown_a_page_with_links() -> None:
    answer = Client().get("/", headers={"Accept": BROWSER})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/html")
    page = answer.content.decode()
    assert 'href="/docs/"' in page
    assert 'href="/admin/"' in page
    assert "This server runs LLM agents" in page
    assert 'href="/console/">Sign in to the console</a>' in page
    assert "default-src 'none'" in answer["Content-Security-Policy"]


def test_clients_other_than_browsers_get_plain_text() -> None:
    for accept in ("*/*", "application/json"):
        answer = Client().get("/", headers={"Accept": accept})
        assert answer["Content-Type"].startswith("text/plain")
        assert "/aap/v3" in answer.content.decode()
        assert "/docs/" in answer.content.decode()


def test_the_home_page_accepts_only_safe_methods() -> None:
    assert Client().head("/").status_code == 200
    assert Client().post("/").status_code == 405


def test_admin_without_a_slash_redirects() -> None:
    answer = Client().get("/admin")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
