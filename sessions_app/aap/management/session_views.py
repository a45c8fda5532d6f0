"""The endpoint of a session's use."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request

from sessions_app.aap.management import types
from sessions_app.aap.management.webhook_views import time_text
from sessions_app.aap.views import Endpoint, caller_of, json_answer, session_of
from sessions_app.core.sessions import particulars
from sessions_app.core.sessions.particulars import Particulars


class OneSession(Endpoint):
    """Read with the same right as the session itself."""

    def get(self, request: Request, session: str) -> HttpResponse:
        found = session_of(caller_of(request), session)
        return json_answer(dict(_shown(found.public_id, found.agent_name, particulars.of(found))))


def _shown(session: str, agent: str, found: Particulars) -> types.SessionUse:
    return {
        "sessionId": session,
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
