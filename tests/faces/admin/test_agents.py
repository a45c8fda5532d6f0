"""The page of the agents: their properties without secrets, their MCP servers, and what each process has loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agenthost.agents_reload import Reloader
from agents_app import registry
from agents_app.mcp import doctor
from agents_app.mcp.doctor import Finding
from sessions_app.core.tenancy import served_agents
from sessions_app.models import AgentsOfProcess, Staff, StaffRole
from tests.faces.admin.pages import html

pytestmark = pytest.mark.django_db(transaction=True)

FILE = """
[[agents]]
name = "pilot"
model = "openai-chat:sailor-1"
api_key = "sk-very-secret"
base_url = "https://models.corp/v1/hidden-path"

[[agents.options]]
type = "secret"
name = "key"
default = "sk-of-the-option"

[[agents.tools]]
builtin = "calculator"

[[agents.mcp]]
name = "harbour"
url = "http://127.0.0.1:9/mcp?token=hidden"

[agents.price."sailor-1"]
input = 2.5
output = 10

[[agents]]
name = "other"
title = "<script>x</script>"
model = "demo:guide"
"""


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[Path]:
    from agents_app.mcp.catalogue import catalogue

    monkeypatch.setattr(registry, "_agents", None)
    settings.AGENTHOST_AGENTS_FILE = tmp_path / "agents.toml"
    settings.AGENTHOST_AGENTS_FILE.write_text(FILE)
    yield tmp_path / "agents.toml"
    catalogue.close()


def test_each_agent_is_shown_with_its_place_and_without_its_secrets(eve: Client, file: Path) -> None:
    page = html(eve.get("/admin/agents/"))
    assert re.search(r"pilot <span[^>]*>0\.0\.0 · line 2<", page)
    for text in ("openai-chat:sailor-1 at https://models.corp", "key: a secret; with a default", "calculator", "harbour at http",
                 "sailor-1: 2.5 in, 10 out", "context_tokens is not set", str(file)):  # fmt: skip
        assert text in page, text
    for secret in ("sk-very-secret", "hidden-path", "token=hidden", "sk-of-the-option", "<script>x"):
        assert secret not in page, secret
    assert "&lt;script&gt;x" in page
    assert 'href="/admin/agents/"' in html(eve.get("/admin/sessions_app/session/"))


def test_a_failed_reload_is_shown_in_full_until_one_succeeds(eve: Client, file: Path) -> None:
    reloader = Reloader(watches=True)
    reloader.note()
    page = html(eve.get("/admin/agents/"))
    assert "failed in" not in page
    assert "old agents" not in page
    file.write_text(FILE + 'modle = "x"\n')
    reloader.reload()
    reloader.note()
    page = html(eve.get("/admin/agents/"))
    assert "The ones before are still served" in page
    assert "line 28: agents[1]" in page
    assert "modle" in page
    row = AgentsOfProcess.objects.get()
    assert row.tried_at > row.loaded_at
    file.write_text(FILE)
    reloader.reload()
    reloader.note()
    assert "still served" not in html(eve.get("/admin/agents/"))


def test_processes_with_other_agents_are_named_and_dead_ones_forgotten(eve: Client, file: Path) -> None:
    own = served_agents.digest(registry.described().values())
    served_agents.note("a", "web", served_agents.Load(own, "", is_new=True))
    assert "different agents" not in html(eve.get("/admin/agents/"))
    served_agents.note("b", "worker", served_agents.Load("0" * 64, "", is_new=True))
    assert "different agents" in html(eve.get("/admin/agents/"))
    AgentsOfProcess.objects.filter(process="b").update(seen_at=timezone.now() - timezone.timedelta(minutes=5))  # type: ignore[attr-defined]
    assert "different agents" not in html(eve.get("/admin/agents/"))
    AgentsOfProcess.objects.filter(process="b").update(seen_at=timezone.now() - timezone.timedelta(hours=1))  # type: ignore[attr-defined]
    served_agents.note("a", "web", served_agents.Load(own, "", is_new=False))
    assert list(AgentsOfProcess.objects.values_list("process", flat=True)) == ["a"]


def test_mcp_servers_are_checked_on_demand_within_a_time_limit(
    eve: Client, reader: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Check now" in html(eve.get("/admin/agents/"))
    shown = html(eve.post("/admin/agents/check/", {"agent": "pilot"}, follow=True))
    assert "MCP server harbour of pilot: http://127.0.0.1:9: the connection is refused" in shown
    assert "token=hidden" not in shown

    def slow(_specs: Any, _seconds: float | None = None) -> list[Finding]:
        raise TimeoutError

    monkeypatch.setattr(doctor, "look", slow)
    assert "took longer than 20 s together" in html(eve.post("/admin/agents/check/", {"agent": "pilot"}, follow=True))
    assert eve.post("/admin/agents/check/", {"agent": "nobody"}).status_code == 404
    assert "Check now" not in html(reader.get("/admin/agents/"))
    assert reader.post("/admin/agents/check/", {"agent": "pilot"}).status_code == 403
    Staff.objects.update(role=StaffRole.OPERATOR, limited=True)
    assert reader.get("/admin/agents/").status_code == 403
