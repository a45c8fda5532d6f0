"""The page of the agents: what each one is, whether its MCP servers answer, and what the processes have loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from agents_app import agent_report, loader, providers, registry
from agents_app.errors import AgentError
from agents_app.mcp import doctor
from agents_app.mcp.catalogue import catalogue
from agents_app.providers import credentials
from agents_app.spec import AgentSpec
from sessions_app.accounts.people import account, own_page
from sessions_app.core.base import database
from sessions_app.core.tenancy import rights, served_agents
from sessions_app.core.tenancy.rights import Right

CHECK_SECONDS = 20.0
"""How long the page waits for the MCP servers of an agent."""

_Urls = Callable[[], list[Any]]


@dataclass(frozen=True, slots=True)
class ServerView:
    name: str
    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentView:
    spec: AgentSpec
    line: int | None
    properties: list[tuple[str, str]]
    warnings: list[str]
    servers: list[ServerView] = field(default_factory=list)


def with_pages(urls: _Urls) -> _Urls:
    """The addresses of the admin with those of this page."""

    def all_urls() -> list[Any]:
        view = admin.site.admin_view
        return [path("agents/", view(page), name="agents"), path("agents/check/", view(check), name="agents_check"), *urls()]

    return all_urls


def listed(app_list: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The admin's lists with a link to this page, for accounts that may see it."""

    def with_agents(request: HttpRequest, app_label: str | None = None) -> list[Any]:
        found = app_list(request, app_label)
        if rights.as_staff(account(request), Right.SEE_SERVER):
            link: dict[str, Any] = {
                "name": "Agents",
                "object_name": "Agents",
                "admin_url": reverse("admin:agents"),
                "add_url": None,
                "view_only": True,
                "perms": {},
            }
            for app in found:
                if app["app_label"] == "sessions_app":
                    app["models"] = sorted([*app["models"], link], key=lambda each: str(each["name"]))
        return found

    return with_agents


def page(request: HttpRequest) -> HttpResponse:
    if not rights.as_staff(account(request), Right.SEE_SERVER):
        raise PermissionDenied
    processes = served_agents.alive()
    try:
        specs = list(registry.agents().values())
    except AgentError as error:
        # A web process does not start with such a file.
        specs, fault = [], str(error)
    else:
        fault = ""
    own = served_agents.digest(registry.described().values()) if not fault else ""
    context = {
        **admin.site.each_context(request),
        "title": "Agents",
        "file": "" if settings.AGENTHOST_AGENTS_FILE is None else str(settings.AGENTHOST_AGENTS_FILE),
        "fault": fault,
        "agents": _views(specs),
        "processes": processes,
        "faulty": [each for each in processes if each.fault],
        "differ": len({each.digest for each in processes} | ({own} if own else set())) > 1,
        "may_check": rights.as_staff(account(request), Right.CHECK_AGENTS),
        "seconds": int(CHECK_SECONDS),
    }
    return own_page(request, "agenthost/agents.html", context)


def check(request: HttpRequest) -> HttpResponse:
    """Ask the MCP servers of an agent now, using its options' defaults."""
    if not rights.as_staff(account(request), Right.CHECK_AGENTS):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    spec = registry.described().get(request.POST.get("agent", ""))
    if spec is None:
        raise Http404
    database.release()
    try:
        findings = doctor.look([spec], CHECK_SECONDS)
    except TimeoutError:
        text = f"The MCP servers of {spec.name} took longer than {CHECK_SECONDS:g} s together."
        messages.error(request, text)
    else:
        for finding in findings:
            add = messages.success if finding.usable else messages.error
            add(request, f"MCP server {finding.server} of {finding.agent}: {finding.words}")
        if not findings:
            messages.info(request, f"The agent {spec.name} has no MCP servers.")
    return HttpResponseRedirect(reverse("admin:agents"))


def _views(specs: list[AgentSpec]) -> list[AgentView]:
    lines = loader.lines_of_agents(Path(settings.AGENTHOST_AGENTS_FILE or registry.BUILTIN_FILE))
    if not specs:
        return []
    described = list(registry.described())
    keys = [name for name in providers.NAMES if credentials.default(name) is not None]
    found = []
    for spec in specs:
        index = described.index(spec.name)
        found.append(
            AgentView(
                spec,
                # The file that comes with the server may have agents that are not served.
                lines[index] if len(lines) == len(described) else None,
                list(agent_report.lines(spec, whole_addresses=False)),
                list(agent_report.warnings(spec, keys)),
                _servers(spec),
            )
        )
    return found


def _servers(spec: AgentSpec) -> list[ServerView]:
    """What this process knows of the agent's MCP servers."""
    faults, known = catalogue.faults(spec), catalogue.known(spec)
    found = []
    for server in spec.mcp:
        count = known.get(server.name)
        tools = "" if count is None else f"{count} tool{'' if count == 1 else 's'} listed"
        fault = faults.get(server.name)
        if fault is None:
            found.append(ServerView(server.name, "done" if tools else "queued", tools or "not asked yet"))
        elif fault.kind == "refused":
            text = "refused the defaults of the options; sessions bring their own credentials"
            found.append(ServerView(server.name, "waiting", text))
        else:
            last = f"; {tools} before" if tools else ""
            found.append(ServerView(server.name, "failed", f"{fault.detail}{last}"))
    return found
