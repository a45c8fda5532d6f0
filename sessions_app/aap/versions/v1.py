"""AAP version 1: its differences from version 2.

Lists contain only ids, and a session contains its histories. The conversions are pure. Only a line in urls.py imports
this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from django.http import HttpResponse
from django.urls import path
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from agents_app.spec import HISTORY_KINDS, HistoryKind
from sessions_app.aap import views
from sessions_app.aap.dialect import Document
from sessions_app.aap.openapi.description import Description, Example, Operation, Parameter
from sessions_app.aap.versions import v2, v3_types
from sessions_app.core.base.content import HistoryMessage
from sessions_app.core.base.errors import HistoryKindUndeclared
from sessions_app.core.base.shapes import Rule

# --- conversions ---


class V1(v2.V2):
    version = 1

    def sessions(self, document: Document) -> Document:
        """A112: the protocol's own pages disagree about the cursor's name, so it has both."""
        document = super().sessions(document)
        shown: Document = {"sessions": [each["sessionId"] for each in document["sessions"]]}
        if "next" in document:
            shown |= {"next": document["next"], "nextCursor": document["next"]}
        return shown

    def description(self) -> Description:
        return _described(super().description())


def history_kinds(query: Mapping[str, str]) -> Sequence[HistoryKind]:
    """The requested kinds (A113); all of them if the query names none (A114)."""
    requested = query.get("history")
    if requested is None:
        return HISTORY_KINDS
    for kind in HISTORY_KINDS:
        if requested == kind:
            return [kind]
    raise ParseError("The query `history` must be compacted or full.")


def with_histories(session: Document, histories: Mapping[str, Any]) -> Document:
    return {**session, "history": dict(histories)} if histories else session


# --- endpoints ---


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


# --- documentation ---

_TEXT = """\
Version 1 of the protocol, for applications that were written for it: the same sessions as version 3's. Lists contain only
ids, and a session contains its history.

"""


class Meta(v3_types.AgentList):
    version: Literal[1]


class SessionList(TypedDict):
    sessions: Annotated[list[v3_types.SessionId], "Newest first, fifty a page.", Rule(maxItems=50)]
    next: NotRequired[v3_types.NextPage]
    nextCursor: NotRequired[Annotated[str, "The same as `next`."]]


class _Histories(TypedDict):
    compacted: NotRequired[list[HistoryMessage]]
    full: NotRequired[list[HistoryMessage]]


class Session(v3_types.Session):
    """The settings of a session, and its messages."""

    history: NotRequired[Annotated[_Histories, "The histories that were asked for, of those that the agent offers."]]


def _described(newer: Description) -> Description:
    """Version 1, from version 2's description."""
    operations = dict(newer.operations)
    agents = operations["GET", "/meta"]
    examples = tuple(replace(each, answer={**each.answer, "version": V1.version}) for each in agents.examples)
    operations["GET", "/meta"] = replace(agents, examples=examples)
    pages = operations["GET", "/sessions"]
    listed = tuple(
        replace(each, answer={**each.answer, "sessions": [one["sessionId"] for one in each.answer["sessions"]]})
        for each in pages.examples
    )
    operations["GET", "/sessions"] = replace(pages, examples=listed)
    histories = operations.pop(("GET", "/session/{session_id}/history"))
    operations["GET", "/session/{session_id}"] = _read(newer, histories.example("full"))
    own = {v3_types.Meta: Meta, v3_types.SessionList: SessionList, v3_types.Session: Session}
    return replace(newer, version=V1.version, text=_TEXT + newer.text, replaced={**newer.replaced, **own}, operations=operations)


def _read(newer: Description, full: Example) -> Operation:
    from sessions_app.aap.openapi import refusals

    read = newer.operations["GET", "/session/{session_id}"]
    kind = Parameter("history", "query", HistoryKind, "The one history to show. Without it: all that the agent offers.")
    session = newer.operations["PUT", "/session"].example("plain").answer["sessionId"]
    agent = newer.operations["POST", "/session/{session_id}"].example("calculate").body["agent"]
    bad_query = refusals.raised_by("bad_query", "The query `history` is not valid.", lambda: history_kinds({"history": "all"}))
    return replace(
        read,
        summary="Read a session",
        text="Its agent, options and tools as set so far, and its messages, oldest first.",
        parameters=(*read.parameters, kind),
        refusals=(*read.refusals, bad_query),
        examples=(
            replace(
                full,
                query={"history": "full"},
                answer={"sessionId": session, "agent": {"name": "demo", **agent}, **full.answer},
            ),
        ),
    )
