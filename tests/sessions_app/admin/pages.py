"""Where the admin's pages are, and what stands on them."""

from __future__ import annotations

from django.db.models import Model
from django.http import HttpResponse
from django.urls import reverse


def url(model: str, page: str, row: Model | None = None) -> str:
    return reverse(f"admin:sessions_app_{model}_{page}", args=() if row is None else (row.pk,))


def html(response: HttpResponse) -> str:
    assert response.status_code == 200, response.status_code
    return response.content.decode()
