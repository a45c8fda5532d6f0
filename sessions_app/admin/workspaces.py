"""The pages of workspaces: list, files, export, removal. Reading files is recorded in the audit log."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path

from agents_app.tools.files.text import SNIFFED, binary_type, decoded, on_one_line, printable
from sessions_app.accounts.people import account, actor, address
from sessions_app.admin.filters import Field, FilterForm, of_tenant, tenant_field
from sessions_app.admin.pages import ReadOnlyAdmin, badge
from sessions_app.core.base.errors import DomainError, InvalidInput, NotReady, PathNotFound, PathOutside, WorkspacesOff
from sessions_app.core.tenancy import audit, rights
from sessions_app.core.tenancy.rights import Right
from sessions_app.core.terminals import disposing
from sessions_app.core.workspaces import inspection, places, upkeep
from sessions_app.core.workspaces.inspection import Content, Listing
from sessions_app.models import Session, Terminal, Workspace
from sessions_app.workspace import paths
from sessions_app.workspace.limits import amount

ENTRIES_A_PAGE = 500
BYTES_SHOWN = 256 * 1024
"""Of a file."""
_KINDS = (("private", "private"), ("shared", "shared"), ("default", "default"))
_DEFAULT = paths.uri_of(places.DEFAULT)
_URI = "file:"


class WorkspaceFilters(FilterForm):
    names = ("tenant", "kind", "state")

    def fields(self) -> list[Field]:
        states = [("used", "in use"), ("removed", "being removed")]
        return [tenant_field(self.request), Field("kind", "Kind", "select", _KINDS), Field("state", "State", "select", states)]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        match name, value:
            case "tenant", slug:
                return of_tenant(rows, slug)
            case "kind", "private":
                return rows.filter(private=True)
            case "kind", "default":
                return rows.filter(root=_DEFAULT)
            case "kind", "shared":
                return rows.filter(private=False).exclude(root=_DEFAULT)
            case "state", "used":
                return rows.filter(removed_at=None)
            case "state", "removed":
                return rows.exclude(removed_at=None)
            case _:
                return rows


def _kind(row: Workspace) -> str:
    return "private" if row.private else "default" if row.root == _DEFAULT else "shared"


@admin.register(Workspace)
class WorkspaceAdmin(ReadOnlyAdmin[Workspace]):
    heading = "Workspaces"
    sees = Right.SEE_SESSIONS
    deletes = Right.DELETE_SESSIONS
    list_display = ("root", "tenant", "kind", "state", "size", "files", "sessions", "last_used")
    list_display_links = ("root",)
    list_filter = (WorkspaceFilters,)
    list_select_related = ("tenant",)
    search_fields = ("public_id",)
    search_help_text = "The start of a URI (file:///…), a session id, or a workspace id"
    ordering = ("-id",)
    scanned = frozenset({"kind", "state"})

    def scans(self, request: HttpRequest) -> bool:
        # Only a tenant has an index of its URIs.
        is_uri = request.GET.get("q", "").strip().startswith(_URI) and not request.GET.get("tenant")
        return is_uri or super().scans(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workspace]:
        bound = Session.objects.filter(workspace=OuterRef("pk")).order_by().values("workspace").annotate(number=Count("pk"))
        return super().get_queryset(request).annotate(session_count=Coalesce(Subquery(bound.values("number")), 0))

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Workspace],
        search_term: str,
    ) -> tuple[QuerySet[Workspace], bool]:
        term = search_term.strip()
        if not term or "\0" in term:
            return queryset, False
        if term.startswith(_URI):
            return queryset.filter(root__startswith=term), False
        found = set(Workspace.objects.filter(public_id=term).values_list("pk", flat=True))
        tenant = Session.with_deleted.filter(public_id=term).values_list("tenant_id", flat=True).first()
        if tenant is not None:
            own = Workspace.objects.filter(tenant_id=tenant, root=paths.uri_of((places.SESSIONS, term)))
            found |= set(own.values_list("pk", flat=True))
        return queryset.filter(pk__in=found), False

    @admin.display(description="kind")
    def kind(self, row: Workspace) -> str:
        return _kind(row)

    @admin.display(description="state")
    def state(self, row: Workspace) -> str:
        return badge("active", "in use") if row.removed_at is None else badge("suspended", "being removed")

    @admin.display(description="size")
    def size(self, row: Workspace) -> str:
        return amount(row.bytes)

    @admin.display(description="sessions")
    def sessions(self, row: Workspace) -> int:
        return int(getattr(row, "session_count", 0))

    @admin.display(description="last use (UTC)")
    def last_used(self, row: Workspace) -> str:
        return f"{row.used_at:%Y-%m-%d %H:%M}"

    def get_urls(self) -> list[Any]:
        own = [
            path(f"<path:object_id>/{name}/", self.admin_site.admin_view(view), name=f"sessions_app_workspace_{name}")
            for name, view in (("export", self.export_view), ("remove", self.remove_view))
        ]
        return own + super().get_urls()

    # --- files ---

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        """A directory or a file. What users have written is read, so it is recorded in the audit log."""
        row = self.find_or_404(request, object_id)
        self.require_content(request, row)
        facts = {
            "title": row.root,
            "workspace": row,
            "kind": _kind(row),
            "size": f"{amount(row.bytes)} of {amount(settings.AGENTHOST_WORKSPACE_BYTES)}",
            "most_files": settings.AGENTHOST_WORKSPACE_FILES,
            "sessions": Session.objects.filter(workspace=row.pk).order_by("-pk")[:20],
            "may_remove": row.removed_at is None and self.may(request, "delete"),
            "link": self.link("change", row.pk),
        }
        try:
            names = inspection.path_of(request.GET.get("path", ""))
        except DomainError:
            raise Http404 from None
        where = paths.uri_of(paths.parse(row.root) + names)
        try:
            found = inspection.look(row, names, request.GET.get("after", ""), ENTRIES_A_PAGE, BYTES_SHOWN)
        except PathNotFound:
            if names:
                raise Http404 from None
            return self.page(request, "agenthost/workspace.html", {**facts, "problem": "Its files are being deleted."})
        except InvalidInput as error:
            return self.page(request, "agenthost/workspace.html", {**facts, "problem": error.faults[0].detail})
        except (WorkspacesOff, NotReady):
            problem = "This process cannot use the volume of the workspaces; its log and /readyz have the reason."
            return self.page(request, "agenthost/workspace.html", {**facts, "problem": problem})
        except PathOutside:
            return self.page(request, "agenthost/workspace.html", {**facts, "problem": "It leads out of the workspace."})
        self._record(request, row, audit.Action.WORKSPACE_READ, where, _detail(found))
        crumbs = [(name, _query("/".join(names[: index + 1]))) for index, name in enumerate(names)]
        shown = _listing(names, found) if isinstance(found, Listing) else {"file": _file(found)}
        return self.page(request, "agenthost/workspace.html", {**facts, "crumbs": crumbs, **shown})

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        row = self.find_or_404(request, object_id)
        if not rights.as_staff(account(request), Right.EXPORT_SESSIONS, row.tenant_id):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        try:
            if inspection.is_empty(row):
                raise PathNotFound
        except DomainError:
            self.message_user(request, "There are no files that could be exported.", messages.WARNING)
            return HttpResponseRedirect(self.link("change", row.pk))
        self._record(request, row, audit.Action.WORKSPACE_EXPORTED, row.root)
        response = StreamingHttpResponse(inspection.tar(row), content_type="application/x-tar")
        response["Content-Disposition"] = f'attachment; filename="{row.tenant.slug}-{row.public_id}.tar"'
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response

    # --- removal ---

    def remove_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.find_or_404(request, object_id)
        self.require(request, "delete")
        if request.method == "POST":
            if upkeep.remove_now(row.pk):
                ended = disposing.dispose_in_workspace(row.pk)
                self._record(request, row, audit.Action.WORKSPACE_REMOVED, row.root, f"{amount(row.bytes)}, {row.files} files")
                remark = f" Its {ended} terminals were ended." if ended else ""
                self.message_user(
                    request, f"Removed: {row.root}. Its files are deleted in the background.{remark}", messages.SUCCESS
                )
            else:
                self.message_user(request, "Nothing changed: removed already.", messages.INFO)
            return HttpResponseRedirect(self.link("changelist"))
        sessions = Session.objects.filter(workspace=row.pk).count()
        terminals = Terminal.objects.filter(workspace=row.pk).count()
        return self.confirm(
            request,
            title=f"Remove {row.root}?",
            text=(
                "All its files are deleted, and cannot be restored. Its terminals end. Sessions that use it continue with an "
                "empty workspace of their own."
            ),
            rows=[
                f"{row.tenant.slug}: {row.root}",
                f"{amount(row.bytes)} in {row.files} files and directories",
                f"{sessions} sessions, {terminals} terminals",
            ],
            button="Remove",
            danger=True,
            back=self.link("change", row.pk),
        )

    def _record(self, request: HttpRequest, row: Workspace, action: audit.Action, uri: str, detail: str = "") -> None:
        audit.record(
            actor=actor(request),
            address=address(request),
            action=action,
            target=f"workspace {uri}",
            tenant=row.tenant,
            detail=detail,
        )


def _query(place: str, **more: str) -> str:
    return "?" + urlencode({"path": place, **more})


def _detail(found: Listing | Content) -> str:
    return f"{len(found.entries)} entries" if isinstance(found, Listing) else f"{len(found.data)} of {found.entry.size} bytes"


def _listing(names: paths.Path, found: Listing) -> dict[str, Any]:
    entries = []
    for entry in found.entries:
        opens = entry.leads_to in ("file", "directory") and "\ufffd" not in entry.name
        entries.append(
            {
                "name": on_one_line(entry.name),
                "is_directory": entry.leads_to == "directory",
                "kind": entry.kind
                if entry.kind != "link"
                else f"link to a {entry.target}"
                if entry.target
                else "link that leads nowhere",
                "size": amount(entry.size) if entry.kind == "file" else "",
                "link": _query("/".join((*names, entry.name))) if opens else "",
            }
        )
    last = found.entries[-1].name if found.more else ""
    return {"listing": True, "entries": entries, "more": _query("/".join(names), after=last) if found.more else ""}


def _file(found: Content) -> dict[str, Any]:
    kind = binary_type(found.entry.name, found.data[:SNIFFED])
    text = "" if kind else "".join(map(_visible, printable(decoded(found.data))))
    return {
        "size": amount(found.entry.size),
        "kind": kind,
        "text": text,
        "hidden": max(0, found.entry.size - len(found.data)),
    }


def _visible(character: str) -> str:
    """Control characters and those that change the direction of text, as their escapes: a file shows as it is."""
    if character in "\n\t" or character == " " or character.isprintable():
        return character
    return ascii(character)[1:-1]
