"""The tenants of a person, and the first page of each: what happened lately, what waits for somebody, where to go."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from agents_app import registry
from sessions_app.accounts.people import own_page
from sessions_app.console import quota_rows
from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core import figures
from sessions_app.core.figures import Attention
from sessions_app.core.sessions import finding
from sessions_app.core.tenancy import audit, keys, quotas, rights
from sessions_app.core.tenancy.rights import RIGHTS, Account, Right
from sessions_app.models import Member, Tenant
from sessions_app.presentation import charts

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One step of setting a tenant up."""

    done: bool
    title: str
    text: str
    url: str = ""
    link: str = ""


@require_safe
@for_members
def home(request: HttpRequest, by: Account) -> HttpResponse:
    """The tenants of which the account is a member."""
    rows = Member.objects.filter(user_id=by.id).select_related("tenant").order_by("tenant__slug")
    return own_page(request, "agenthost/console/home.html", {"rows": rows, "account": by})


@require_safe
@for_members
def tenant(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    found = rights.own_tenant(by, slug)
    series = figures.series("day", [found.pk])
    sessions = finding.find(found.pk, finding.Filters(), most=_SHOWN)
    quotas_used = quota_rows.rows(quotas.usage(found))
    attention = figures.attention([found.pk])
    context = {
        "steps": _steps(by, found, has_sessions=bool(sessions)),
        "sessions": sessions,
        "attention": attention,
        "near": [row for row in quotas_used if row.tone != "good"],
        "nothing_waits": not _waits(attention) and all(row.tone == "good" for row in quotas_used),
        "tiles": _tiles(series, attention),
        "records": audit.newest(found, _SHOWN) if rights.as_member(by, Right.SEE_AUDIT, found.pk) else (),
        "rights": sorted(right.replace("_", " ") for right in RIGHTS[by.roles[found.pk]]),
    }
    return tenant_page(request, by, found, "tenant", "agenthost/console/tenant.html", context)


def _waits(attention: Attention) -> bool:
    return bool(attention.waiting or attention.failing or attention.expiring) or attention.workers == 0


def _tiles(series: figures.Series, attention: Attention) -> list[tuple[str, str]]:
    median = series.first_output(0.5)
    return [
        ("running now", charts.count(attention.running)),
        ("turns", charts.count(series.total.turns)),
        ("errors", charts.count(series.total.errors)),
        ("first output, median", "–" if median is None else charts.seconds(median)),
        ("tokens", charts.count(series.use.input_tokens + series.use.output_tokens)),
        ("cost", charts.money(series.use.cost_nano)),
    ]


def _steps(by: Account, found: Tenant, *, has_sessions: bool) -> list[Step]:
    """What is left to do until the tenant is used; empty if nothing is."""
    agents = [name for name in registry.agents() if found.allowed_agents is None or name in found.allowed_agents]
    has_key = bool(keys.of_tenant(found.pk, state="active", most=1))
    if agents and has_key and has_sessions:
        return []
    may_talk = rights.as_member(by, Right.USE_AGENTS, found.pk)
    may_make = rights.as_member(by, Right.MANAGE_KEYS, found.pk)
    return [
        Step(
            bool(agents),
            "An agent",
            f"You can use {', '.join(agents[:5])}."
            if agents
            else "The operator of this server describes agents in a file and allows them to tenants. Ask for the first one.",
        ),
        Step(
            has_key,
            "A key",
            "Your applications send it with each request." if may_make else "An owner or developer makes the first one.",
            reverse("console:new_key", args=[found.slug]) if may_make and not has_key else "",
            "Make one",
        ),
        Step(
            has_sessions,
            "A session",
            "Paste the command that is shown with a new key into a terminal, or talk to an agent in the playground. "
            "What the agent did appears here.",
            reverse("console:playground", args=[found.slug]) if agents and may_talk and not has_sessions else "",
            "Open the playground",
        ),
    ]


@require_safe
@for_members
def nothing(request: HttpRequest, by: Account, rest: str) -> HttpResponse:  # noqa: ARG001 - the same for everybody
    """Every other address below /console/: as a page, because a person has typed it or followed an old link."""
    if not rest.endswith("/"):
        return HttpResponseRedirect(f"{request.path}/")
    raise Http404
