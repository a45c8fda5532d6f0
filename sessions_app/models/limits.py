"""The limit columns of tenants and keys."""

from __future__ import annotations

from django.db import models


def _limit(help_text: str) -> models.PositiveBigIntegerField[int | None, int | None]:
    return models.PositiveBigIntegerField(null=True, blank=True, help_text=help_text)


class Limited(models.Model):
    """Columns of a tenant and of a key. Empty (null) on a tenant: the server's default; on a key: only the tenant's limit."""

    max_turns_at_once = _limit("Turns queued or running at the same time. Turns that wait for their client do not count.")
    max_turns_per_minute = _limit("Turns begun or resumed within any 60 seconds.")
    max_tokens_per_day = _limit(
        "Tokens read and written by models in a day (UTC). A turn under way ends before its next model call."
    )
    max_sessions = _limit("Sessions that are there; a deleted one frees its place.")
    max_stored_bytes = _limit("Bytes of histories, tools and options. Deleting a session frees its bytes.")
    max_request_bytes = _limit("The largest request body, in bytes; never more than the server takes.")

    class Meta:
        abstract = True
