"""The further pages of a session: its events, what its model was sent, and stopping and deleting it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path

from sessions_app.accounts.people import account, actor, address
from sessions_app.admin import exports, live, reasons
from sessions_app.admin.pages import OperatorAdmin
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.base.errors import DomainError, NotPossible
from sessions_app.core.log import journal
from sessions_app.core.sessions import deleting, export_files, exporting, model_input, operator_forks
from sessions_app.core.tenancy import rights, transcript_access
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import LIVE_STATES, Session, Turn
from sessions_app.presentation import downloads
from sessions_app.presentation.content import blocks, cut, pretty

if TYPE_CHECKING:
    _Pages = OperatorAdmin[Session]
else:
    _Pages = object

EVENTS_A_PAGE = 100
_EVENT_SHOWN = 4000
_LINE_SHOWN = 3000
_TURNS_OFFERED = 200
"""The newest ended turns, up to one of which a session can be forked."""


class ForkForm(forms.Form):
    turn = forms.ChoiceField(label="With everything up to and including turn")

    def __init__(self, turns: Sequence[tuple[str, datetime, str]], *args: Any) -> None:
        super().__init__(*args)
        choices = [(name, f"{name}, {at:%Y-%m-%d %H:%M:%S}, {state}") for name, at, state in turns]
        self.fields["turn"].choices = choices  # type: ignore[attr-defined]  # of its kind


class SessionPages(_Pages):
    """Pages below a session's, for ``SessionAdmin``."""

    def session_urls(self) -> list[Any]:
        views: dict[str, Callable[..., HttpResponseBase]] = {
            "export": self.export_view,
            "fork": self.fork_view,
            "live": self.live_view,
            "events": self.events_view,
            "input": self.input_view,
            "stop": self.stop_view,
            "delete-session": self.delete_session_view,
        }
        return [
            path(f"<path:object_id>/{name}/", self.admin_site.admin_view(view), name=f"sessions_app_session_{name}")
            for name, view in views.items()
        ]

    def may_here(self, request: HttpRequest, session: Session, right: Right) -> bool:
        return rights.as_staff(account(request), right, session.tenant_id)

    def _require_here(self, request: HttpRequest, session: Session, right: Right) -> None:
        if not self.may_here(request, session, right):
            raise PermissionDenied

    def _read(self, request: HttpRequest, session: Session, reason: str, detail: str) -> None:
        """Record the reading, as that of the transcript."""
        transcript_access.read(
            account(request), session, reason=reason, detail=detail, actor=actor(request), address=address(request)
        )

    def events_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The session's events, a page from a position on; the position is set with a slider or by number."""
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.READ_TRANSCRIPTS)
        reason = reasons.given(request, session)
        if reason is None:
            return reasons.ask(self, request, session)
        first, last = journal.span(session.pk)
        before, after = _number(request.GET.get("before")), _number(request.GET.get("after"))
        rows = journal.browse(session.pk, after=after, before=before, limit=EVENTS_A_PAGE, most=_EVENT_SHOWN)
        self._read(request, session, reason, "events" + (f" {rows[0].seq} to {rows[-1].seq}" if rows else ""))
        events = [(row, cut(pretty(row.data) if row.size <= len(row.data) else row.data, _EVENT_SHOWN)) for row in rows]
        return self.page(
            request,
            "agenthost/session_events.html",
            {
                "title": f"Events of {session.public_id}",
                "session": session,
                "events": events,
                "first": first,
                "last": last,
                "at": rows[0].seq if rows else first,
                "earlier": rows[0].seq if rows and first is not None and rows[0].seq > first else None,
                "later": rows[-1].seq if rows and last is not None and rows[-1].seq < last else None,
            },
        )

    def input_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.READ_TRANSCRIPTS)
        reason = reasons.given(request, session)
        if reason is None:
            return reasons.ask(self, request, session)
        wanted = request.GET.get("turn", "")
        found = Turn.objects.filter(session=session).select_related("definition").defer("parts").order_by("-pk")
        turn = found.filter(public_id=wanted).first() if wanted and "\0" not in wanted else found.first()
        if turn is None:
            raise Http404
        step = max(1, _number(request.GET.get("step")) or turn.step or 1)
        context: dict[str, Any] = {"title": f"Model input in {session.public_id}", "session": session, "turn": turn, "step": step}
        try:
            sent = model_input.at_step(session, turn, step)
        except model_input.TooLongToShow:
            context["too_long"] = model_input.MOST_MESSAGES
        else:
            context["input"] = sent
            context["lines"] = [(line, blocks(line.content, most=_LINE_SHOWN)) for line in sent.lines]
            context["earlier"] = step - 1 if step > 1 else None
            context["later"] = step + 1 if step < sent.steps or (step == sent.steps and turn.state in LIVE_STATES) else None
        self._read(request, session, reason, f"model input of turn {turn.public_id}, step {step}")
        return self.page(request, "agenthost/session_input.html", context)

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.EXPORT_SESSIONS)
        reason = reasons.given(request, session)
        if reason is None:
            return reasons.ask(self, request, session)
        form = exports.SessionExportForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            wish = form.wish()
            try:
                body = export_files.of_session(session, wish)
            except NotPossible as error:
                form.add_error(None, str(error))
            else:
                what = "; ".join(filter(None, (wish.form, reason and f"reason: {reason}")))
                exporting.begin(session, actor=actor(request), address=address(request), form=what)
                return downloads.response(body, f"{session.public_id}.{'html' if wish.pages else 'jsonl'}")
        return self.confirm(
            request,
            title=f"Export {session.public_id}",
            text=exports.SESSION_TEXT,
            rows=[],
            button="Download",
            form=form,
            back=self.link("change", session.pk),
        )

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """What follows on an open page of the transcript, as server-sent events. The page's ticket shows that it was recorded."""
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.READ_TRANSCRIPTS)
        if not live.is_ticket(request.GET.get("ticket", ""), account(request).id, session):
            raise PermissionDenied
        after = _number(request.headers.get("Last-Event-ID"))
        stream = live.open_stream(request, session, (_number(request.GET.get("after")) or 0) if after is None else after)
        if stream is None:
            return HttpResponse("Too many pages follow sessions already.", status=503, content_type="text/plain")
        # Otherwise this thread would keep its connection while the stream is open.
        database.release()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingHttpResponse(stream, content_type="text/event-stream", headers=headers)

    def fork_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.FORK_SESSIONS)
        ended = Turn.objects.filter(session=session, cut_at=None).exclude(state__in=LIVE_STATES).order_by("-pk")
        form = ForkForm(list(ended.values_list("public_id", "created_at", "state")[:_TURNS_OFFERED]), request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                made = operator_forks.fork(session, form.cleaned_data["turn"], actor=actor(request), address=address(request))
            except DomainError as error:
                form.add_error(None, str(error) or error.code.replace("_", " "))
            else:
                row = Session.objects.get(public_id=made.public_id)
                self.message_user(request, f"This is the new session. It was forked from {session.public_id}.", messages.SUCCESS)
                return HttpResponseRedirect(self.link("change", row.pk))
        nothing = [] if ended.exists() else ["This session has no ended turn, so nothing can be copied."]
        return self.confirm(
            request,
            title=f"Fork {session.public_id}",
            text="A new session of the same tenant and agent gets a copy of the messages up to a turn. Nothing runs in it until "
            "a client sends a message. It counts for the key that created this session. The audit records it.",
            rows=nothing,
            button="Fork",
            form=form,
            back=self.link("change", session.pk),
        )

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.STOP_TURNS)
        back = self.link("change", session.pk)
        if request.method == "POST":
            if turns.stop_by_operator(session, actor=actor(request), address=address(request)):
                self.message_user(request, "The turn was stopped.", messages.SUCCESS)
            else:
                self.message_user(request, "Nothing was stopped: no turn is live any more.", messages.INFO)
            return HttpResponseRedirect(back)
        live = Turn.objects.filter(session=session, state__in=LIVE_STATES).first()
        return self.confirm(
            request,
            title="Stop the turn?",
            text="The call to the model and running tools are stopped, and the turn ends as cancelled. Its output so far is kept."
            if live is not None
            else "No turn is live in this session now.",
            rows=[] if live is None else [f"{live.public_id}, {live.state}"],
            button="Stop",
            danger=True,
            back=back,
        )

    def delete_session_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        session = self.find_or_404(request, object_id)
        self._require_here(request, session, Right.DELETE_SESSIONS)
        if request.method == "POST":
            deleting.delete_by_operator(session, actor=actor(request), address=address(request))
            self.message_user(request, f"{session.public_id} was deleted.", messages.SUCCESS)
            return HttpResponseRedirect(self.link("changelist"))
        return self.confirm(
            request,
            title="Delete the session?",
            text="It disappears for its clients at once, and its live turn is stopped. Housekeeping removes its messages, calls "
            "and events within minutes. The audit log and the counts of its model use stay. This cannot be undone.",
            rows=[f"{session.public_id}, agent {session.agent_name}, tenant {session.tenant.slug}"],
            button="Delete",
            danger=True,
            back=self.link("change", session.pk),
        )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
