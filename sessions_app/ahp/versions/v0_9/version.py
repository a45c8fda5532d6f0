"""AHP 0.9 as a ``Version``, and what 1.0 shares with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sessions_app.ahp.version import ClientNotification, Version
from sessions_app.ahp.versions.v0_9 import dispatch, errors, negotiation
from sessions_app.ahp.versions.v0_9.commands import channels, commands
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection.actions import Projection
from sessions_app.ahp.versions.v0_9.projection.notifications import SummaryNotifications
from sessions_app.ahp.versions.v0_9.snapshots import Snapshots
from sessions_app.ahp.versions.v0_9.wire.commands import NOTICES


def make(name: str, listed: str, choose: Callable[[Sequence[str]], str | None], face: Face) -> Version:
    """A version with this name. For editors that find an agent in the scheme of URIs, it is made once more."""
    return Version(
        name=f"{name} by provider" if face.by_provider else name,
        listed=() if face.by_provider else (listed,),
        choose=choose,
        fits=lambda request: negotiation.needs_providers(request.params) == face.by_provider,
        recognises=lambda request: not face.by_provider and negotiation.is_new_reconnect(request.params),
        commands=commands(face),
        client_notifications={
            "dispatchAction": ClientNotification(NOTICES["dispatchAction"], partial(dispatch.take, face=face), limited=True),
            "unsubscribe": ClientNotification(NOTICES["unsubscribe"], channels.unsubscribe),
        },
        errors=errors.TABLE,
        subject=errors.subject,
        snapshots=Snapshots(face),
        projection=Projection(face),
        summary_notifications=SummaryNotifications(face),
    )


VERSION = make("0.9", "0.9.0", negotiation.choose_0_9, Face("0.9"))
BY_PROVIDER = make("0.9", "0.9.0", negotiation.choose_0_9, Face("0.9", by_provider=True))
