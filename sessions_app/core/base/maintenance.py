"""Background maintenance over rows of many tenants: bounded in time, fair between tenants, robust against single rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import F, Model, QuerySet, Window
from django.db.models.functions import Random, RowNumber

from sessions_app.core.base import database, lock_timeouts, redaction
from sessions_app.core.base.lock_timeouts import LockHeld

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Model)

_ROWS_PER_TENANT, _MOST_ROWS = 100, 1000
_SECONDS = 5.0
_MOST_SKIPPED = 10_000
_DELETE_BATCH = 1000


class Round:
    """One round of maintenance. Rows that are locked or fail are skipped; only a lost database ends the round at once.

    ``skipped``: the keys of these rows, so that the caller can select others. ``error``: the first failure, of
    ``failed_row``.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.skipped: set[int] = set()
        self.error: Exception | None = None
        self.failed_row = 0

    @property
    def over(self) -> bool:
        """Whether the time is up or too many rows were skipped."""
        return time.monotonic() >= self._until or len(self.skipped) >= _MOST_SKIPPED

    def for_each(self, rows: Iterable[int], do: Callable[[int], int]) -> int:
        """Call ``do`` for each row until the time is up; returns the sum of its results."""
        done = 0
        for row in rows:
            if self.over:
                break
            try:
                done += do(row)
            except LockHeld:
                self.skipped.add(row)
            except Exception as error:
                locked = database.is_lock_refused(error)
                if database.is_away(error) and not locked:
                    raise
                self.skipped.add(row)
                if self.error is None and not locked:
                    self.error, self.failed_row = error, row
        return done

    def report(self, what: str) -> None:
        """Log the first failure, if there was one."""
        if self.error is not None:
            log.error("row_skipped task=%r row=%s: %s", what, self.failed_row, redaction.described(self.error))


def fair_selection(rows: QuerySet[M, Any]) -> list[int]:
    """Row keys for one round: a limited number per tenant, taken from the tenants in turn.

    A tenant's rows come in random order, so that locked ones do not displace its others round after round.
    """
    nth = Window(RowNumber(), partition_by=[F("tenant_id")], order_by=[Random()])
    ranked = rows.order_by().annotate(nth=nth).filter(nth__lte=_ROWS_PER_TENANT).order_by("nth", "pk")
    return list(ranked.values_list("pk", flat=True)[:_MOST_ROWS])


def for_each(rows: Iterable[int], do: Callable[[int], int]) -> int:
    """Run one round over these rows; the first row's error is raised after all other rows."""
    this = Round(_SECONDS)
    done = this.for_each(rows, do)
    if this.error is not None:
        raise this.error
    return done


def delete_in_batches(rows: QuerySet[M, Any], seconds: float = _SECONDS) -> int:
    """Delete these rows until the time is up, one batch per transaction, skipping locked rows; returns their number."""
    until, deleted = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        with transaction.atomic():
            free = rows.select_for_update(skip_locked=lock_timeouts.skip_locked()).values_list("pk", flat=True)
            keys = list(free[:_DELETE_BATCH])
            deleted += rows.model._base_manager.filter(pk__in=keys).delete()[0]
        if len(keys) < _DELETE_BATCH:
            break
    return deleted
