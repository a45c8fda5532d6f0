"""Model changes that clients made during a turn: they are stored, and take effect when the turn ends."""

from __future__ import annotations

from agents_app import exact_json, registry
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import session_changes
from sessions_app.models import DeferredModel, Turn


def apply_deferred_models(turn: Turn) -> list[Happening]:
    """Apply a locked turn's deferred changes, in the transaction that ends it. The last one wins.

    Returns one event per change; they are appended right after the event of the turn's end.
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
