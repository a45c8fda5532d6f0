"""What a session has used, and when: for its clients, beside the protocols."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import model_use
from sessions_app.models import Session


@dataclass(frozen=True, slots=True)
class Particulars:
    uri: str
    """Over AHP."""
    title: str | None
    created_at: datetime
    modified_at: datetime
    use: model_use.Line


def of(session: Session) -> Particulars:
    """``session``: one that the caller may read."""
    # The session at hand may be a remembered one, without what changes.
    found = Session.objects.filter(pk=session.pk).values_list("title", "created_at", "modified_at").first()
    if found is None:
        raise SessionNotFound
    title, created_at, modified_at = found
    return Particulars(
        addresses.of(session),
        title,
        created_at,
        modified_at,
        model_use.of_session(session.tenant_id, session.public_id, created_at),
    )
