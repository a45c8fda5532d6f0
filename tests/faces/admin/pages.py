"""Where the admin's pages are, and what stands on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import Model
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse


def url(model: str, page: str, row: Model | None = None) -> str:
    return reverse(f"admin:sessions_app_{model}_{page}", args=() if row is None else (row.pk,))


def html(response: Any) -> str:
    """The page, of a test client's answer (which has no type of its own to name)."""
    assert response.status_code == 200, response.status_code
    return str(response.content.decode())


def patterns(of: Any = None, inside: bool = False) -> Iterator[str]:
    """The names of all pages below /admin/."""
    for each in get_resolver().url_patterns if of is None else of:
        if isinstance(each, URLResolver):
            yield from patterns(each.url_patterns, inside or each.namespace == "admin")
        elif isinstance(each, URLPattern) and inside and each.name is not None:
            yield each.name


def address(name: str, rows: Mapping[str, Any]) -> str:
    """Where the page is, of the tenant's row."""
    model = next((model for model in rows if f"_{model}_" in name), None)
    try:
        return reverse(f"admin:{name}")
    except NoReverseMatch:
        assert model is not None
        return reverse(f"admin:{name}", args=(rows[model].pk,))
