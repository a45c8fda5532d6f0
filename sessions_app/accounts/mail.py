"""Mail, if a mail server is configured. Nothing depends on it: each link is also shown to its maker."""

from __future__ import annotations

import logging
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import send_mail

from sessions_app.core.base import redaction
from sessions_app.models import Invitation

log = logging.getLogger(__name__)

_TEXT = """You are invited to the tenant {tenant} with the role {role}.

Open this link to accept; it works once, until {until:%Y-%m-%d %H:%M} UTC:

{link}

If you do not know why you get this, ignore it.
"""


def is_configured() -> bool:
    return bool(settings.EMAIL_HOST)


def send_invitation(invitation: Invitation, link: str) -> bool:
    """Mail an invitation's link to its address; False if that was not possible."""
    if not is_configured() or not invitation.email:
        return False
    text = _TEXT.format(tenant=invitation.tenant.slug, role=invitation.role, until=invitation.expires_at, link=link)
    try:
        return send_mail(f"Invitation to {invitation.tenant.slug}", text, None, [invitation.email]) == 1
    except (SMTPException, OSError) as error:
        log.warning("mail_failed invitation=%s: %s", invitation.pk, redaction.described(error))
        return False
