"""Reading a transcript: a right of its own, with a reason where the operator demands one, and always recorded."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.utils import timezone

from sessions_app.core.base.errors import Fault, InvalidInput, ReasonNeeded
from sessions_app.core.tenancy import audit, rights
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Session

LONGEST_REASON = 500
_NAMESPACE = uuid.UUID("0a57c8f2-6f0e-4a53-9a2c-7c1d3f0b6f5e")


def check_reason(reason: str) -> str:
    """The reason without surrounding space. ``ReasonNeeded`` if one is demanded and missing."""
    reason = " ".join(reason.split())
    if len(reason) > LONGEST_REASON or "\0" in reason:
        raise InvalidInput([Fault(("reason",), f"a reason has at most {LONGEST_REASON} characters, without U+0000")])
    if not reason and settings.AGENTHOST_TRANSCRIPT_REASON:
        raise ReasonNeeded
    return reason


def read(by: Account, session: Session, *, reason: str = "", detail: str = "", actor: str, address: str) -> None:
    """Allow and record one reading. Call it before anything of the transcript is shown.

    Members read the sessions of their own tenant without a reason; staff give one where the operator demands it.
    """
    rights.require(by, Right.READ_TRANSCRIPTS, session.tenant)
    if not rights.as_member(by, Right.READ_TRANSCRIPTS, session.tenant_id):
        reason = check_reason(reason)
    audit.record(
        actor=actor,
        address=address,
        action=audit.Action.TRANSCRIPT_READ,
        target=f"session {session.public_id}",
        tenant=session.tenant,
        detail="; ".join(filter(None, (detail, reason and f"reason: {reason}"))),
    )


def keep_reading(by: Account, session: Session, *, actor: str, address: str) -> None:
    """Allow a member's page that follows a session to read it again and again; recorded once an hour."""
    rights.require(by, Right.READ_TRANSCRIPTS, session.tenant)
    hour = int(timezone.now().timestamp() // 3600)
    audit.record_once(
        uuid.uuid5(_NAMESPACE, f"{session.public_id} {by.id} {hour}"),
        actor=actor,
        address=address,
        action=audit.Action.TRANSCRIPT_READ,
        target=f"session {session.public_id}",
        tenant_id=session.tenant_id,
        detail="live, as it goes on; further reads within the hour are not recorded",
    )
