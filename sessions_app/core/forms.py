"""Forms: questions of an agent to its user, opened by a tool call, answered in drafts, closed once."""

from __future__ import annotations

from datetime import datetime

from agents_app import exact_json
from agents_app.runtime.interface import Call
from agents_app.tools import questions
from sessions_app.core.events import Happening, Kind
from sessions_app.core.history import Place
from sessions_app.core.identifiers import new_id
from sessions_app.core.prepared import Statement


def opened(place: Place, turn: str, call: Call, at: datetime) -> tuple[Happening, Statement]:
    """The form of a call of ``ask_user``, whose arguments were found without fault."""
    form = {"id": new_id("form"), **questions.form(exact_json.loads(call.arguments))}
    statement = Statement(
        "insert into sessions_app_form (tenant_id, session_id, turn_id, call_id, form_id, document, answers, response,"
        " created_at) values (%s, %s, %s, %s, %s, %s, '{}', '', %s)",
        (place.tenant, place.session, place.turn, call.call_id, form["id"], exact_json.dumps(form), at),
    )
    return Happening(Kind.FORM_OPENED, {"turn": turn, "call": call.call_id, "form": form}), statement
