"""The pages of terminals: list, what one shows, ending it. Reading one is recorded in the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path

from agents_app.tools.commands.excerpt import Cleaner
from sessions_app.accounts.people import actor, address
from sessions_app.admin.filters import Field, FilterForm, of_tenant, tenant_field
from sessions_app.admin.pages import ReadOnlyAdmin, badge
from sessions_app.core.log import journal
from sessions_app.core.tenancy import audit
from sessions_app.core.tenancy.rights import Right
from sessions_app.core.terminals import disposing
from sessions_app.core.terminals.screen import Part, Screen
from sessions_app.core.terminals.state import read_screen
from sessions_app.core.terminals.types import Claim
from sessions_app.models import Session, Terminal, TerminalScreen, TerminalState, Workspace
from sessions_app.presentation.content import Excerpt

OUTPUT_SHOWN = 20_000
"""Characters of one command's output: the last ones."""


class TerminalFilters(FilterForm):
    names = ("tenant", "kind", "state")

    def fields(self) -> list[Field]:
        states = [(state.value, state.label.lower()) for state in TerminalState]
        kinds = [("shell", "shell"), ("command", "agent's command")]
        return [tenant_field(self.request), Field("kind", "Kind", "select", kinds), Field("state", "State", "select", states)]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        match name, value:
            case "tenant", slug:
                return of_tenant(rows, slug)
            case "kind", "shell":
                return rows.filter(command=None)
            case "kind", "command":
                return rows.exclude(command=None)
            case "state", state:
                return rows.filter(state=state)
            case _:
                return rows


@dataclass(frozen=True, slots=True)
class Output:
    """A command with its output, or output outside of commands. ``code`` None: there is none."""

    line: str
    excerpt: Excerpt
    is_command: bool
    is_complete: bool
    code: int | None
    at: datetime | None
    took: timedelta | None


@admin.register(Terminal)
class TerminalAdmin(ReadOnlyAdmin[Terminal]):
    heading = "Terminals"
    sees = Right.SEE_SESSIONS
    deletes = Right.STOP_TURNS
    list_display = ("public_id", "tenant", "named", "shown_state", "held_by", "requested", "service")
    list_display_links = ("public_id",)
    list_filter = (TerminalFilters,)
    list_select_related = ("tenant",)
    search_fields = ("public_id",)
    search_help_text = "A terminal id, or its complete URI"
    ordering = ("-id",)
    scanned = frozenset({"kind", "state"})

    def scans(self, request: HttpRequest) -> bool:
        # Only a tenant has an index of its URIs.
        is_uri = ":" in request.GET.get("q", "") and not request.GET.get("tenant")
        return is_uri or super().scans(request)

    def get_search_results(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Terminal],
        search_term: str,
    ) -> tuple[QuerySet[Terminal], bool]:
        term = search_term.strip()
        if not term or "\0" in term:
            return queryset, False
        return (queryset.filter(uri=term) if ":" in term else queryset.filter(public_id=term)), False

    @admin.display(description="title")
    def named(self, row: Terminal) -> str:
        return _clean(row.command if row.command is not None else row.title)[:80] or "–"

    @admin.display(description="state")
    def shown_state(self, row: Terminal) -> str:
        return _state(row)

    @admin.display(description="held by")
    def held_by(self, row: Terminal) -> str:
        return _holder(row)

    @admin.display(description="requested (UTC)")
    def requested(self, row: Terminal) -> str:
        return f"{row.requested_at:%Y-%m-%d %H:%M:%S}"

    def get_urls(self) -> list[Any]:
        own = [path("<path:object_id>/end/", self.admin_site.admin_view(self.end_view), name="sessions_app_terminal_end")]
        return own + super().get_urls()

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        row = self.find_or_404(request, object_id)
        self.require_content(request, row)
        with journal.snapshot():
            screen = _screen(row)
        outputs = [] if screen is None else [output_of(part) for part in screen.parts]
        detail = f"{sum(each.is_command for each in outputs)} commands"
        self._record(request, row, audit.Action.TERMINAL_READ, detail)
        return self.page(
            request,
            "agenthost/terminal.html",
            {
                "title": row.public_id,
                "terminal": row,
                "named": _clean(row.title),
                "command": None if row.command is None else _clean(row.command),
                "state": _state(row),
                "holder": _holder(row),
                "session": None if row.claim_session is None else Session.objects.filter(pk=row.claim_session).first(),
                "workspace": None if row.workspace is None else Workspace.objects.filter(pk=row.workspace).first(),
                "outputs": outputs,
                "commands": [each for each in outputs if each.is_command],
                "detects": screen is not None and screen.detects,
                "may_end": self.may(request, "delete"),
            },
        )

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.find_or_404(request, object_id)
        self.require(request, "delete")
        if request.method == "POST":
            if disposing.dispose_row(row.pk):
                self._record(request, row, audit.Action.TERMINAL_ENDED)
                self.message_user(request, f"Ended: {row.public_id}.", messages.SUCCESS)
            else:
                self.message_user(request, "Nothing changed: ended already.", messages.INFO)
            return HttpResponseRedirect(self.link("changelist"))
        return self.confirm(
            request,
            title=f"End {row.public_id}?",
            text="Its programs are killed, and it disappears from the clients that watch it.",
            rows=[f"{row.tenant.slug}: {row.uri}", _holder(row)],
            button="End",
            danger=True,
            back=self.link("change", row.pk),
        )

    def _record(self, request: HttpRequest, row: Terminal, action: audit.Action, detail: str = "") -> None:
        audit.record(
            actor=actor(request),
            address=address(request),
            action=action,
            target=f"terminal {row.public_id}",
            tenant=row.tenant,
            detail=detail,
        )


def _screen(row: Terminal) -> Screen | None:
    try:
        return read_screen(row.pk)[0]
    except TerminalScreen.DoesNotExist:
        return None


def output_of(part: Part) -> Output:
    text = _clean(part.text)
    return Output(
        line=_clean(part.line),
        excerpt=Excerpt(text[-OUTPUT_SHOWN:], max(0, len(text) - OUTPUT_SHOWN)),
        is_command=part.command is not None,
        is_complete=part.is_complete,
        code=part.code,
        at=datetime.fromtimestamp(part.at / 1000, UTC) if part.command is not None and 0 < part.at < 2**42 else None,
        took=None if part.ms is None else timedelta(milliseconds=part.ms),
    )


def _clean(text: str) -> str:
    """Text without control sequences and control characters: nothing that a program prints acts in a browser."""
    cleaner = Cleaner()
    shown = cleaner.feed(text) + cleaner.end()
    return "".join(character for character in shown if character in "\n\t" or character == " " or character.isprintable())


def _state(row: Terminal) -> str:
    if row.state != TerminalState.EXITED:
        return badge("running" if row.state == TerminalState.RUNNING else "queued", row.state)
    if row.exit_code is None:
        return badge("cancelled", "exited without a code")
    return badge("done" if row.exit_code == 0 else "failed", f"exited: {row.exit_code}")


def _holder(row: Terminal) -> str:
    claim = Claim.read(row.claim)
    if claim.session is None:
        return f"client {claim.client}"
    return f"session, for the call {claim.call}" if claim.call is not None else "session, in the background"
