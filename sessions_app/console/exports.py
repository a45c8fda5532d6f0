"""Taking all data of a tenant away, and what the server keeps for how long."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_http_methods

from sessions_app.accounts.people import actor, address
from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core import figures
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.sessions import export_files
from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.core.workspaces import access as file_rules
from sessions_app.models import Tenant
from sessions_app.presentation import downloads
from sessions_app.presentation.export_forms import TenantExportForm


@require_http_methods(["GET", "HEAD", "POST"])
@for_members
def tenant(request: HttpRequest, by: Account, slug: str) -> HttpResponseBase:
    found = rights.own_tenant(by, slug, Right.EXPORT_SESSIONS)
    form = TenantExportForm(request.POST if request.method == "POST" else None)
    no_files = file_rules.restrict_clients()
    if no_files:
        del form.fields["workspace"]
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                body = export_files.tenant_of_member(found, form.wish(), actor=actor(request), address=address(request))
            except NotPossible as error:
                form.add_error(None, f"{str(error)[:1].upper()}{str(error)[1:]}.")
                status = 409
            else:
                return downloads.response(body, f"{found.slug}.zip")
    context = {"form": form, "no_files": no_files, "kept": kept(found)}
    return tenant_page(request, by, found, "sessions", "agenthost/console/tenant_export.html", context, status)


def kept(tenant: Tenant) -> list[tuple[str, str, str]]:
    """What is stored of the tenant, for how long, and where to take it away."""
    days = tenant.session_retention_days
    sessions = "until you delete them" if days is None else f"until you delete them, or nobody has used them for {_days(days)}"
    return [
        ("Sessions: messages, images, tool calls, forms, summaries, contents of edits", sessions, "this export"),
        ("Files of a session's own workspace", "as long as the session", "this export"),
        (
            "Files of workspaces that sessions share",
            f"{_days(settings.AGENTHOST_WORKSPACE_DAYS)} after the last session that used them",
            "this export, with each session",
        ),
        (
            "Pieces of streamed answers",
            _seconds(settings.AGENTHOST_DELTA_RETENTION_SECONDS),
            "streams; the messages have the text",
        ),
        ("Other events of sessions", _seconds(settings.AGENTHOST_EVENT_RETENTION_SECONDS), "streams"),
        ("Use and cost by day", _seconds(settings.AGENTHOST_USAGE_RETENTION_SECONDS), "the page Use"),
        ("Turns and times over time", _days(figures.HOURS_KEPT.days), "the page Use"),
        ("The audit", "until the operator of this server prunes it", "the page Audit, for owners"),
        ("Backups", "as the operator of this server decides", "–"),
    ]


def _seconds(seconds: float) -> str:
    length = timedelta(seconds=seconds)
    if length < timedelta(days=2):
        return f"{length / timedelta(hours=1):g} hours"
    return _days(length.days)


def _days(number: int) -> str:
    return f"{number:,} day{'' if number == 1 else 's'}"
