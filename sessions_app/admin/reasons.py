"""The form that asks for a reason before a transcript is shown, where the operator demands one.

A reason holds for one session and one hour, in the browser's signed-in session.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from sessions_app.core.base.errors import DomainError
from sessions_app.core.tenancy import transcript_access
from sessions_app.models import Session

if TYPE_CHECKING:
    from sessions_app.admin.pages import OperatorAdmin

_KEPT = "transcript_reasons"
_SECONDS = 3600
_MOST = 50


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=transcript_access.LONGEST_REASON, help_text="Why you read this conversation. It is stored in the audit."
    )


def given(request: HttpRequest, session: Session) -> str | None:
    """The reason that was given for this session; "" if none is demanded, None if one is missing."""
    if not needed():
        return ""
    text, until = request.session.get(_KEPT, {}).get(session.public_id, ("", 0))
    return str(text) if until > time.time() else None


def needed() -> bool:
    return bool(settings.AGENTHOST_TRANSCRIPT_REASON)


def ask(page: OperatorAdmin[Any], request: HttpRequest, session: Session) -> HttpResponse:
    """The form, or a redirect back to the transcript when the form was sent."""
    form = ReasonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            reason = transcript_access.check_reason(form.cleaned_data["reason"])
        except DomainError as error:
            form.add_error("reason", str(error))
        else:
            _keep(request, session, reason)
            return HttpResponseRedirect(request.get_full_path())
    return page.confirm(
        request,
        title="Why do you read this conversation?",
        text="This server records who reads a conversation, and why. The reason holds for this session for one hour.",
        rows=[f"{session.public_id} ({session.tenant.slug})"],
        button="Read",
        form=form,
        back=page.link("changelist"),
    )


def _keep(request: HttpRequest, session: Session, reason: str) -> None:
    kept = {name: entry for name, entry in request.session.get(_KEPT, {}).items() if entry[1] > time.time()}
    kept[session.public_id] = (reason, time.time() + _SECONDS)
    request.session[_KEPT] = dict(list(kept.items())[-_MOST:])
