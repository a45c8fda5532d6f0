"""AAP version 1: what it says otherwise than version 2, and where.

Lists are of bare ids, and histories stand in the session itself. The conversions are pure. Nothing but a
line in urls.py knows this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpResponse
from django.urls import path
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from agents_app.spec import HISTORY_KINDS, HistoryKind
from sessions_app.aap import views
from sessions_app.aap.dialect import Document
from sessions_app.aap.versions import v2
from sessions_app.core.errors import HistoryKindUndeclared

# --- other words ---


class V1(v2.V2):
    version = 1

    def sessions(self, document: Document) -> Document:
        """A112: the protocol's own pages disagree about the cursor's name, so it has both."""
        document = super().sessions(document)
        shown: Document = {"sessions": [each["sessionId"] for each in document["sessions"]]}
        if "next" in document:
            shown |= {"next": document["next"], "nextCursor": document["next"]}
        return shown


def history_kinds(query: Mapping[str, str]) -> Sequence[HistoryKind]:
    """Which kinds are asked for (A113); all of them if none is named (A114)."""
    word = query.get("history")
    if word is None:
        return HISTORY_KINDS
    for kind in HISTORY_KINDS:
        if word == kind:
            return [kind]
    raise ParseError("The query `history` must be compacted or full.")


def with_histories(session: Document, histories: Mapping[str, Any]) -> Document:
    return {**session, "history": dict(histories)} if histories else session


# --- addresses ---


class OneSession(v2.OneSession):
    def get(self, request: Request, session_id: str) -> HttpResponse:
        caller = views.caller_of(request)
        session = views.session_of(caller, session_id)
        histories: Document = {}
        for kind in history_kinds(request.GET):
            with contextlib.suppress(HistoryKindUndeclared):
                histories |= views.history_document(caller, session, kind)["history"]
        shown = self.dialect.session(views.session_document(session))
        return views.json_answer(with_histories(shown, histories))


_DIALECT = V1()

urlpatterns = [
    path("meta", views.Meta.as_view(dialect=_DIALECT)),
    path("sessions", views.SessionList.as_view(dialect=_DIALECT)),
    path("session", v2.Session.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>", OneSession.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>/events/stream", views.EventStream.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>/cancel", views.Cancel.as_view(dialect=_DIALECT)),
]
