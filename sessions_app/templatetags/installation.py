"""Commands in the texts of pages, as this installation has them."""

from __future__ import annotations

from django import template

from agents_app import installation

register = template.Library()


@register.simple_tag
def manage(arguments: str, more: object = "") -> str:
    """``{% manage "check_agents" %}``; a value may follow: ``{% manage "delete_tenant" slug %}``."""
    return installation.manage(f"{arguments} {more}" if more else arguments)
