"""The pages of sessions: a list that stays fast at a million rows, and the transcript."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection, transaction
from django.db.models import CharField, Count, Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.text import Truncator

from agents_app import registry
from sessions_app.accounts.people import account, actor, address
from sessions_app.admin import live, reasons
from sessions_app.admin.filters import Field, FilterForm, of_tenant, since, tenant_field, until
from sessions_app.admin.pages import ReadOnlyAdmin, badge
from sessions_app.admin.session_pages import SessionPages
from sessions_app.core.log import journal
from sessions_app.core.records import search_index
from sessions_app.core.tenancy import rights, transcript_access
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import LIVE_STATES, ApiKey, Session, Tenant, Turn
from sessions_app.presentation import transcript

_IDLE = "idle"
_SEARCH_SECONDS = 5.0
_CANCELLED = "57014"
"""The SQLSTATE of a statement that took too long."""
_MATCHES, _KEYS = 500, 50
_TENANTS_SEARCHED = 50
"""Staff of more tenants search the newest matches of all of them together, as others do."""


def _live_turns() -> QuerySet[Turn]:
    return Turn.objects.filter(session=OuterRef("pk"), state__in=LIVE_STATES)


class SessionFilters(FilterForm):
    names = ("words", "tenant", "agent", "key", "state", "since", "until")

    def fields(self) -> list[Field]:
        states = [(state.value, state.label.lower()) for state in LIVE_STATES]
        return [
            Field("words", "Words in title and messages", "text"),
            tenant_field(self.request),
            Field("agent", "Agent", "text", [(name, spec.title or "") for name, spec in registry.agents().items()]),
            Field("key", "Key (its first characters)", "text"),
            Field("state", "Live turn", "select", [*states, (_IDLE, "none")]),
            Field("since", "Created from (UTC)", "date"),
            Field("until", "until", "date"),
        ]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        match name:
            case "tenant":
                return of_tenant(rows, value)
            case "agent":
                return rows.filter(agent_name=value)
            case "words":
                readable = rights.of_staff(account(self.request), Right.READ_TRANSCRIPTS, rows)
                of = account(self.request).staff_tenants
                return readable.filter(pk__in=_with_words(value, self.given.get("tenant"), of))
            case "key":
                keys = ApiKey.objects.filter(prefix__startswith=value[:16]).values_list("pk", flat=True)
                return rows.filter(created_by_id__in=list(keys[:_KEYS]))
            case "since":
                return since(rows, "created_at", value)
            case "until":
                return until(rows, "created_at", value)
            case _ if value == _IDLE:
                return rows.filter(~Exists(_live_turns()))
            case _:
                return rows.filter(Exists(_live_turns().filter(state=value)))


def _session_of_turn(turn: str, tenant: str) -> int | None:
    """The session of the turn with this id. In a tenant its sessions lead to it; in all tenants no index does.

    That search reads the whole table, so it is stopped after some seconds: an index would cost every new turn.
    """
    rows = Turn.objects.filter(public_id=turn).order_by()
    if tenant:
        rows = rows.filter(session__in=of_tenant(Session.objects.all(), tenant).values("pk"))
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"set local statement_timeout = {int(_SEARCH_SECONDS * 1000)}")
        return next(iter(rows.values_list("session_id", flat=True)[:1]), None)


def _with_words(text: str, tenant: str | None, limited_to: frozenset[int] | None) -> list[int]:
    """The sessions with the newest matches, which are as many as a list of them is useful.

    ``limited_to``: the tenants of staff that see no others. They are searched one by one, so that the matches of other tenants,
    however many there are, do not displace theirs.
    """
    number = None if tenant is None else Tenant.objects.filter(slug=tenant).values_list("pk", flat=True).first()
    terms = search_index.terms(text)
    if not terms or (tenant is not None and number is None):
        return []
    of = [number] if number is not None or limited_to is None or len(limited_to) > _TENANTS_SEARCHED else sorted(limited_to)
    found = [match for each in of for match in search_index.matches(terms, each, None, _MATCHES)]
    found.sort(key=lambda match: match.row, reverse=True)
    return [match.session for match in found[:_MATCHES]]


@admin.register(Session)
class SessionAdmin(SessionPages, ReadOnlyAdmin[Session]):
    heading = "Sessions"
    sees = Right.SEE_SESSIONS
    list_display = ("public_id", "shown_title", "tenant", "agent_name", "created", "live", "turns")
    list_display_links = ("public_id",)
    list_filter = (SessionFilters,)
    list_select_related = ("tenant",)
    ordering = ("-created_at", "-id")
    search_fields = ("public_id__startswith",)
    search_help_text = "The start of a session id, or a complete turn id"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        counted = Turn.objects.filter(session=OuterRef("pk")).order_by().values("session").annotate(number=Count("pk"))
        return (
            super()
            .get_queryset(request)
            .defer("tool_refs", "client_tools")
            .annotate(
                live_state=Subquery(_live_turns().values("state")[:1], output_field=CharField()),
                turn_count=Coalesce(Subquery(counted.values("number")), 0),
            )
        )

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: QuerySet[Session],
        search_term: str,
    ) -> tuple[QuerySet[Session], bool]:
        term = search_term.strip()
        if not term or "\0" in term:
            return queryset, False
        found = queryset.filter(public_id__startswith=term)
        # Of tenants that this account sees: another one's session or turn gives the same list as one that does not exist.
        if rights.of_staff(account(request), self.sees, Session.objects.filter(public_id__startswith=term)).exists():
            return found, False
        try:
            by_turn = _session_of_turn(term, request.GET.get("tenant", ""))
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") != _CANCELLED:
                raise
            took = f"The search for a turn with this id was stopped after {_SEARCH_SECONDS:g} s"
            self.message_user(request, f"{took}. Choose its tenant, and search again.", messages.WARNING)
            return queryset.none(), False
        return found if by_turn is None else queryset.filter(pk=by_turn), False

    def get_urls(self) -> list[Any]:
        return self.session_urls() + super().get_urls()

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Without titles, which are made from messages, for accounts that may not read those."""
        may_read = rights.as_staff(account(request), Right.READ_TRANSCRIPTS)
        return tuple(name for name in self.list_display if may_read or name != "shown_title")

    @admin.display(description="title", empty_value="–")
    def shown_title(self, row: Session) -> str | None:
        return Truncator(row.title).chars(60) if row.title else None

    @admin.display(description="created (UTC)")
    def created(self, row: Session) -> str:
        return f"{row.created_at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="live turn", empty_value="–")
    def live(self, row: Session) -> str | None:
        state: str | None = getattr(row, "live_state", None)
        return None if state is None else badge(state)

    @admin.display(description="turns")
    def turns(self, row: Session) -> int:
        return int(getattr(row, "turn_count", 0))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        """The transcript. Reading a user's conversation is recorded in the audit log."""
        session = self.find_or_404(request, object_id)
        if not rights.as_staff(account(request), Right.READ_TRANSCRIPTS, session.tenant_id):
            raise PermissionDenied
        reason = reasons.given(request, session)
        if reason is None:
            return reasons.ask(self, request, session)
        only = _number(request.GET.get("message"))
        session_facts = transcript.facts(session)
        # Before the messages are read, so that the page misses nothing between the two.
        position = 0 if session_facts.live is None or only is not None else journal.before_open_step(session.pk)
        follows = ""
        shown = transcript.page(session, _number(request.GET.get("page")) or 1)
        if only is None:
            detail = f"messages, page {shown.number} of {shown.paginator.num_pages}"
            if session_facts.live is not None and not shown.has_next():
                ticket = live.ticket(account(request).id, session)
                follows = f"{self.link('live', session.pk)}?{urlencode({'after': position, 'ticket': ticket})}"
                detail += ", and what follows live"
            views = transcript.turns_of(session, shown)
        else:
            detail = f"message {only}"
            views = transcript.single(session, only)
            if not views:
                raise Http404
        transcript_access.read(
            account(request), session, reason=reason, detail=detail, actor=actor(request), address=address(request)
        )
        return self.page(
            request,
            "agenthost/transcript.html",
            {
                "title": session.public_id,
                "session": session,
                "facts": session_facts,
                "live": follows,
                "views": views,
                "shown": shown,
                "only": only,
                "can_export": self.may_here(request, session, Right.EXPORT_SESSIONS),
                "can_fork": self.may_here(request, session, Right.FORK_SESSIONS),
                "can_stop": self.may_here(request, session, Right.STOP_TURNS),
                "can_delete": self.may_here(request, session, Right.DELETE_SESSIONS),
            },
        )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
