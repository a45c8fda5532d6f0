"""Rounds of background work over rows of many tenants: bounded, fair, and not stopped by a single row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError
from django.db.models import F, Model, QuerySet, Window
from django.db.models.functions import Random, RowNumber

from sessions_app.core.errors import NotReady
from sessions_app.core.held import Held

M = TypeVar("M", bound=Model)

_OF_A_TENANT, _IN_ALL = 100, 1000
_SECONDS = 5.0


def fairly(rows: QuerySet[M, Any]) -> list[int]:
    """Keys of these rows for one round: a limited number of each tenant, all tenants' first ones first.

    A tenant's rows come in random order, so that locked ones do not keep its others out round after round.
    """
    nth = Window(RowNumber(), partition_by=[F("tenant_id")], order_by=[Random()])
    ranked = rows.order_by().annotate(nth=nth).filter(nth__lte=_OF_A_TENANT).order_by("nth", "pk")
    return list(ranked.values_list("pk", flat=True)[:_IN_ALL])


def each(rows: Iterable[int], do: Callable[[int], int], *, seconds: float = _SECONDS) -> int:
    """Call ``do`` for each row within the time; the sum of what it returned.

    Held rows are left for the next round. A row that fails does not keep the others from their turn: the first
    such error is raised when all are done. Only a lost database ends the round at once.
    """
    until, done = time.monotonic() + seconds, 0
    failed: Exception | None = None
    for row in rows:
        if time.monotonic() >= until:
            break
        try:
            done += do(row)
        except Held:
            continue
        except (OperationalError, InterfaceError, NotReady):
            raise
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return done
