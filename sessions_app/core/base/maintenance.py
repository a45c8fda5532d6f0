"""Rounds of background work over rows of many tenants: bounded, fair, and not stopped by a single row."""

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

_ROWS_PER_TENANT, _IN_ALL = 100, 1000
_SECONDS = 5.0
_MOST_SKIPPED = 10_000
_DELETE_BATCH = 1000


class Round:
    """One round. Rows that are held or that fail are passed over; only a lost database ends the round at once.

    ``passed_over``: their keys, so that the caller can look beyond them. ``error``: the first failure, of ``failed_row``.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self.skipped: set[int] = set()
        self.error: Exception | None = None
        self.failed_row = 0

    @property
    def over(self) -> bool:
        """Whether the time is up, or too many rows were passed over to look beyond them."""
        return time.monotonic() >= self._until or len(self.skipped) >= _MOST_SKIPPED

    def for_each(self, rows: Iterable[int], do: Callable[[int], int]) -> int:
        """Call ``do`` for each row within the time; the sum of what it returned."""
        done = 0
        for row in rows:
            if self.over:
                break
            try:
                done += do(row)
            except LockHeld:
                self.skipped.add(row)
            except Exception as error:
                held_up = database.is_lock_refused(error)
                if database.is_away(error) and not held_up:
                    raise
                self.skipped.add(row)
                if self.error is None and not held_up:
                    self.error, self.failed_row = error, row
        return done

    def report(self, what: str) -> None:
        """Log the first failure, if there was one."""
        if self.error is not None:
            log.error("row_passed_over duty=%r row=%s: %s", what, self.failed_row, redaction.described(self.error))


def fair_selection(rows: QuerySet[M, Any]) -> list[int]:
    """Keys of these rows for one round: a limited number of each tenant, all tenants' first ones first.

    A tenant's rows come in random order, so that locked ones do not keep its others out round after round.
    """
    nth = Window(RowNumber(), partition_by=[F("tenant_id")], order_by=[Random()])
    ranked = rows.order_by().annotate(nth=nth).filter(nth__lte=_ROWS_PER_TENANT).order_by("nth", "pk")
    return list(ranked.values_list("pk", flat=True)[:_MOST_ROWS])


def for_each(rows: Iterable[int], do: Callable[[int], int]) -> int:
    """A round of its own; if a row fails, its error is raised when all the others are done."""
    one = Round(_SECONDS)
    done = one.each(rows, do)
    if one.error is not None:
        raise one.error
    return done


def delete_in_batches(rows: QuerySet[M, Any], seconds: float = _SECONDS) -> int:
    """Delete these rows within the time, a batch a transaction, but for those that are locked; how many."""
    until, deleted = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        with transaction.atomic():
            free = rows.select_for_update(skip_locked=lock_timeouts.skip_locked()).values_list("pk", flat=True)
            keys = list(free[:_DELETE_BATCH])
            deleted += rows.model._base_manager.filter(pk__in=keys).delete()[0]
        if len(keys) < _DELETE_BATCH:
            break
    return deleted
