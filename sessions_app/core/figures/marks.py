"""How far each count of figures has come."""

from __future__ import annotations

from datetime import UTC, datetime

from sessions_app.models import FiguresMark


def read(name: str) -> datetime | None:
    return FiguresMark.objects.filter(pk=name).values_list("at", flat=True).first()


def write(name: str, at: datetime) -> None:
    FiguresMark.objects.update_or_create(pk=name, defaults={"at": at})


def start_of(at: datetime, width: int) -> datetime:
    """The start of the bucket that has this time."""
    return datetime.fromtimestamp(int(at.timestamp()) // width * width, UTC)
