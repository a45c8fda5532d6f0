"""The sessions of a tenant: finding, reading, following live, exporting, stopping and deleting them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agents_app import registry
from sessions_app.accounts.people import actor, address
from sessions_app.console import paging
from sessions_app.console.pages import confirm_page, tenant_page
from sessions_app.console.requests import for_members
from sessions_app.console.scripts import for_scripts, page_origin
from sessions_app.core import turns
from sessions_app.core.base.caller import READ
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.sessions import deleting, export_files, finding
from sessions_app.core.sessions.export_files import Wish
from sessions_app.core.tenancy import members, rights, tokens, transcript_access
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Session, Tenant
from sessions_app.presentation import downloads, transcript

_form_methods = require_http_methods(["GET", "HEAD", "POST"])
_LONGEST_FILTER = 200
_NEWEST_PAGE = 10**9


@require_safe
@for_members
def index(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_SESSIONS)
    may_read = rights.as_member(by, Right.READ_TRANSCRIPTS, tenant.pk)
    given = {name: _given(request, name) for name in ("words", "id", "agent", "key", "state", "since", "until")}
    wanted = finding.Filters(
        words=given["words"] if may_read else "",
        id=given["id"],
        agent=given["agent"],
        key=given["key"].removesuffix("…"),
        state=given["state"],
        since=_day(given["since"]),
        until=_after(_day(given["until"])),
    )
    listed = paging.page(
        request, lambda before, most: finding.find(tenant.pk, wanted, before=before, most=most), lambda found: found.row.pk
    )
    context = {
        "listed": listed,
        "sessions": listed.rows,
        "given": given,
        "filtered": any(given.values()),
        "states": finding.STATES,
        "agents": [name for name in registry.agents() if tenant.allowed_agents is None or name in tenant.allowed_agents],
        "may_read": may_read,
    }
    return tenant_page(request, by, tenant, "sessions", "agenthost/console/sessions.html", context)


def _given(request: HttpRequest, name: str) -> str:
    return request.GET.get(name, "").replace("\0", "").strip()[:_LONGEST_FILTER]


def _day(text: str) -> datetime | None:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        return None


def _after(day: datetime | None) -> datetime | None:
    """The end of a day that is included."""
    return None if day is None or day.date() == date.max else day + timedelta(days=1)


@require_safe
@for_members
def one(request: HttpRequest, by: Account, slug: str, session: str) -> HttpResponse:
    """The transcript. Reading it is recorded in the audit; a page that follows it live is recorded once an hour."""
    tenant, row = _session(by, slug, session, Right.READ_TRANSCRIPTS)
    facts = transcript.facts(row)
    only = paging.number(request.GET.get("message"))
    wanted = paging.number(request.GET.get("page"))
    shown = transcript.page(row, wanted if wanted is not None else _NEWEST_PAGE if facts.live else 1)
    if only is None:
        detail, views = f"messages, page {shown.number} of {shown.paginator.num_pages}", transcript.turns_of(row, shown)
    else:
        detail, views = f"message {only}", transcript.single(row, only)
        if not views:
            raise Http404
    if "live" in request.GET:
        transcript_access.keep_reading(by, row, actor=actor(request), address=address(request))
    else:
        transcript_access.read(by, row, detail=detail, actor=actor(request), address=address(request))
    context = {
        "session": row,
        "facts": facts,
        "views": views,
        "shown": shown,
        "only": only,
        "follows": only is None and not shown.has_next() and tenant.suspended_at is None,
    }
    return tenant_page(request, by, tenant, "sessions", "agenthost/console/session.html", context)


@sensitive_variables()
@require_POST
@for_scripts
def token(request: HttpRequest, by: Account, slug: str, session: str) -> HttpResponse:
    """Mint a token for the page that follows this session: to read this one only."""
    tenant, row = _session(by, slug, session, Right.READ_TRANSCRIPTS)
    if tenant.suspended_at is not None:
        raise NotPossible("the tenant is suspended: nothing runs in it until the operator resumes it")
    with members.keeping_role(by, tenant):
        minted = tokens.mint_for_member(tenant, request.user, scopes=[READ], origin=page_origin(request), session=row)  # type: ignore[arg-type]
    return JsonResponse({"token": minted.raw, "seconds": tokens.USUAL, "scopes": minted.scopes})


@_form_methods
@for_members
def export(request: HttpRequest, by: Account, slug: str, session: str) -> HttpResponseBase:
    tenant, row = _session(by, slug, session, Right.EXPORT_SESSIONS)
    if request.method != "POST":
        context = {"session": row}
        return tenant_page(request, by, tenant, "sessions", "agenthost/console/session_export.html", context)
    form = request.POST.get("form")
    wish = Wish(pages=form == "page", files=form == "files")
    body = export_files.session_of_member(row, wish, actor=actor(request), address=address(request))
    return downloads.response(body, f"{row.public_id}.{'html' if wish.pages else 'jsonl'}")


@_form_methods
@for_members
def stop(request: HttpRequest, by: Account, slug: str, session: str) -> HttpResponse:
    tenant, row = _session(by, slug, session, Right.STOP_TURNS)
    back = _address(row, slug)
    if request.method != "POST":
        live = transcript.facts(row).live
        return confirm_page(
            request,
            by,
            tenant,
            "sessions",
            title="Stop the turn?",
            text="No turn is live in this session now."
            if live is None
            else "The call to the model and running tools are stopped; the turn ends as cancelled. Its output so far is kept.",
            button="Stop",
            back=back,
            danger=True,
        )
    if turns.stop_by_operator(row, actor=actor(request), address=address(request)):
        messages.success(request, "The turn was stopped.")
    else:
        messages.info(request, "Nothing was stopped: no turn is live any more.")
    return HttpResponseRedirect(back)


@_form_methods
@for_members
def delete(request: HttpRequest, by: Account, slug: str, session: str) -> HttpResponse:
    tenant, row = _session(by, slug, session, Right.DELETE_SESSIONS)
    if request.method != "POST":
        return confirm_page(
            request,
            by,
            tenant,
            "sessions",
            title=f"Delete {row.public_id}?",
            text="It disappears for its clients at once, and its live turn is stopped. Its messages, calls and events are "
            "removed within minutes. The audit and the counts of its use stay. This cannot be undone.",
            button="Delete",
            back=_address(row, slug),
            danger=True,
        )
    deleting.delete_by_operator(row, actor=actor(request), address=address(request))
    messages.success(request, f"{row.public_id} was deleted.")
    return HttpResponseRedirect(reverse("console:sessions", args=[slug]))


def _session(by: Account, slug: str, public_id: str, right: Right) -> tuple[Tenant, Session]:
    tenant = rights.own_tenant(by, slug, right)
    return tenant, finding.one(tenant.pk, public_id)


def _address(row: Session, slug: str) -> str:
    return reverse("console:session", args=[slug, row.public_id])
