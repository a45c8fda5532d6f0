"""The endpoints of sessions: finding them, their dates and use, and their export."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from sessions_app.aap.dialect import Document
from sessions_app.aap.management import downloads, parameters, types
from sessions_app.aap.management.webhook_views import time_text
from sessions_app.aap.views import Endpoint, caller_of, json_answer, session_of
from sessions_app.core.base.caller import EXPORT, READ
from sessions_app.core.sessions import export_files, finding, particulars
from sessions_app.core.sessions.export_files import Wish
from sessions_app.core.sessions.finding import Filters, Found
from sessions_app.core.sessions.particulars import Particulars


class Sessions(Endpoint):
    """Found by what the queries say."""

    scopes = dict.fromkeys(("GET", "HEAD"), READ)

    def get(self, request: Request) -> HttpResponse:
        query = request.GET
        wanted = Filters(
            words=parameters.text(query, "words"),
            id=parameters.text(query, "id"),
            agent=parameters.text(query, "agent"),
            key=parameters.text(query, "key"),
            state=parameters.choice(query, "state", finding.STATES),
            since=start_of(parameters.day(query, "since")),
            until=end_of(parameters.day(query, "until")),
        )
        found = finding.find_for(caller_of(request), wanted, before=parameters.before(query), most=parameters.PAGE + 1)
        return json_answer(parameters.paged("sessions", found, _found, lambda each: each.row.pk))


class OneSession(Endpoint):
    """Read with the same right as the session itself."""

    def get(self, request: Request, session: str) -> HttpResponse:
        found = session_of(caller_of(request), session)
        return json_answer(dict(_shown(found.public_id, found.agent_name, particulars.of(found))))


class SessionExport(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD"), EXPORT)
    http_method_names = ["get", "head"]

    def get(self, request: Request, session: str) -> HttpResponseBase:
        is_page = parameters.choice(request.GET, "form", ("jsonl", "html")) == "html"
        wish = Wish(pages=is_page, files=parameters.flag(request.GET, "files") and not is_page)
        # The id is good for a name: a session with it was found.
        name = f"{session}.{'html' if is_page else 'jsonl'}"
        return downloads.answer(request, name, lambda caller: export_files.session_for(caller, session, wish))


class TenantExport(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD"), EXPORT)
    http_method_names = ["get", "head"]

    def get(self, request: Request) -> HttpResponseBase:
        query = request.GET
        wish = Wish(
            pages=parameters.flag(query, "pages"),
            files=parameters.flag(query, "files"),
            since=start_of(parameters.day(query, "since")),
            until=end_of(parameters.day(query, "until")),
        )
        return downloads.answer(request, "export.zip", lambda caller: export_files.tenant_for(caller, wish))


def start_of(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), UTC)


def end_of(day: date | None) -> datetime | None:
    """The end of a day that is included."""
    return None if day is None or day == date.max else datetime.combine(day + timedelta(days=1), time(), UTC)


def _found(found: Found) -> Document:
    row = found.row
    shown: types.FoundSession = {
        "sessionId": row.public_id,
        "agent": row.agent_name,
        "title": row.title,
        "state": found.state or None,
        "createdAt": time_text(row.created_at) or "",
        "modifiedAt": time_text(row.modified_at) or "",
    }
    return dict(shown)


def _shown(session: str, agent: str, found: Particulars) -> types.SessionUse:
    return {
        "sessionId": session,
        "uri": found.uri,
        "agent": agent,
        "title": found.title,
        "createdAt": time_text(found.created_at) or "",
        "modifiedAt": time_text(found.modified_at) or "",
        "use": {
            "calls": found.use.calls,
            "inputTokens": found.use.input_tokens,
            "outputTokens": found.use.output_tokens,
            "cacheReadTokens": found.use.cache_read_tokens,
            "cost": None if found.use.cost is None else f"{found.use.cost:f}",
            "unpricedTokens": found.use.unpriced_tokens,
        },
    }
