"""Template filters for the transcript: times, durations and numbers."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app.models import Turn
from sessions_app.presentation import charts
from sessions_app.presentation.markdown import render
from sessions_app.presentation.transcript import turn_text

register = template.Library()


@register.filter
def markdown(text: str) -> SafeString:
    return render(text)


@register.filter
def moment(at: datetime | None) -> str | SafeString:
    if at is None:
        return ""
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S}")


@register.filter
def clock(at: datetime) -> SafeString:
    """The time of day in milliseconds; the message shows the date."""
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}")


@register.filter
def length_of(took: timedelta) -> str:
    seconds = took.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


@register.filter
def grouped(number: int) -> str:
    """A number with commas between thousands, as on charts and in limits."""
    return f"{number:,}"


@register.filter
def money(cost: Decimal) -> str:
    return charts.money(float(cost) * 10**9)


@register.filter
def turn_state(turn: Turn) -> str:
    return turn_text(turn)


@register.filter
def words(name: str) -> str:
    """A name of the code as words: ``key_issued`` is "key issued"."""
    return name.replace("_", " ")
