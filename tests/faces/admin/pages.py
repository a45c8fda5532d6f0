"""Where the admin's pages are, and what stands on them."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.urls import reverse


def url(model: str, page: str, row: Model | None = None) -> str:
    return reverse(f"admin:sessions_app_{model}_{page}", args=() if row is None else (row.pk,))


def html(response: Any) -> str:
    """The page, of a test client's answer (which has no type of its own to name)."""
    assert response.status_code == 200, response.status_code
    return str(response.content.decode())
