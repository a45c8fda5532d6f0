"""How a run's turn ends, and the provider's failures that made it end."""

from __future__ import annotations

import logging

from django.utils import timezone

from agents_app.errors import ProviderError
from agents_app.runtime.interface import EndReason
from agents_app.runtime.loop import Plan
from sessions_app.core.base import times
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import history
from sessions_app.core.turns import failures
from sessions_app.core.worker.loading import Loaded
from sessions_app.models import TurnState

log = logging.getLogger(__name__)


class Failures:
    """The provider's failures in one run."""

    def __init__(self) -> None:
        self.last: ProviderError | None = None

    def record(self, error: ProviderError) -> None:
        log.warning("provider_failed fault=%s: %s", error.fault, error.detail)
        self.last = error


def ending(
    loaded: Loaded, plan: Plan, step: int, failed: ProviderError | None, reason: EndReason, error: str
) -> tuple[Happening, history.End]:
    """The event of the turn's end, and what its row gets."""
    lasted = min(times.between(loaded.created_at, timezone.now()), times.LONGEST_MS)
    began = loaded.began or times.text_of(loaded.created_at)
    payload = {"turn": loaded.public_id, "run": loaded.run, "in_run": True, "started_at": began, "duration_ms": lasted}
    failure = None
    if failed is not None:
        failure = failures.facts(failed, plan.full_model)
        if error == failures.FAILED:
            error = failures.code_of(failed, loaded.spec, loaded.options)
    if reason != "error":
        happening = Happening(Kind.TURN_ENDED, {**payload, "reason": reason})
        return happening, history.End(TurnState.DONE, reason, error, failure, lasted, resumable=False)
    resumable = failures.may_pass(error, failed) and failures.has_room(step, plan.limits.max_steps, loaded.attempt)
    happening = Happening(Kind.TURN_FAILED, {**payload, "error": error, "resumable": resumable})
    return happening, history.End(TurnState.ERROR, reason, error, failure, lasted, resumable)
