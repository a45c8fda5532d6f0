"""The tag that makes the figures of the first page."""

from __future__ import annotations

from typing import Any

from django import template

from sessions_app.admin.overview import Overview, overview

register = template.Library()


@register.simple_tag(takes_context=True)
def first_page(context: dict[str, Any]) -> Overview | None:
    return overview(context["request"])
