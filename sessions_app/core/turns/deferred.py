"""What clients changed while a turn was under way, and what counts from its end."""

from __future__ import annotations

from agents_app import exact_json, registry
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import session_changes
from sessions_app.models import DeferredModel, Turn


def take_deferred(turn: Turn) -> list[Happening]:
    """Make the changes, in the transaction that ends the turn; the turn is locked, as by whoever defers a change.

    What is answered follows right after the event of the end. Each change is told, the last one wins.
    """
    if not turn.attention:
        return []
    rows = list(DeferredModel.objects.filter(session_id=turn.session_id).order_by("pk"))
    if not rows:
        return []
    DeferredModel.objects.filter(pk__in=[row.pk for row in rows]).delete()
    session_changes.set_model(turn.session, registry.find(turn.session.agent_name), rows[-1].model)
    happenings = []
    for row in rows:
        payload = session_changes.model_payload(row.model, None if row.config is None else exact_json.loads(row.config))
        if row.origin is not None:
            payload["origin"] = exact_json.loads(row.origin)
        happenings.append(Happening(Kind.MODEL_CHANGED, payload))
    return happenings
