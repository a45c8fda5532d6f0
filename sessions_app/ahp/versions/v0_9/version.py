"""AHP 0.9 as a ``Version``, and what 1.0 shares with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sessions_app.ahp.transport.jsonrpc import Request
from sessions_app.ahp.version import ClientNotification, Version
from sessions_app.ahp.versions.v0_9 import dispatch, errors, negotiation
from sessions_app.ahp.versions.v0_9.commands import channels, commands
from sessions_app.ahp.versions.v0_9.face import Dialect, Face, Family
from sessions_app.ahp.versions.v0_9.projection.actions import Projection
from sessions_app.ahp.versions.v0_9.projection.notifications import SummaryNotifications
from sessions_app.ahp.versions.v0_9.snapshots import Snapshots
from sessions_app.ahp.versions.v0_9.wire.commands import NOTICES


def make_all(name: str, listed: str, choose: Callable[[Sequence[str]], str | None], family: Family) -> tuple[Version, ...]:
    """A version with this name, and its dialects."""
    dialects: tuple[Dialect, ...] = ("", "editor", "by provider")
    return tuple(_make(name, listed, choose, Face(family, dialect)) for dialect in dialects)


def _name(version: str, dialect: Dialect) -> str:
    return f"{version} {dialect}" if dialect else version


def _make(name: str, listed: str, choose: Callable[[Sequence[str]], str | None], face: Face) -> Version:
    def of_returning(request: Request) -> str:
        """An editor that was updated since its last handshake may need the other dialect."""
        return _name(name, negotiation.dialect_of_editor(request.params) if face.dialect else "")

    return Version(
        name=_name(name, face.dialect),
        listed=() if face.dialect else (listed,),
        choose=choose,
        fits=lambda request: negotiation.dialect(request.params) == face.dialect,
        recognises=lambda request: not face.dialect and negotiation.is_new_reconnect(request.params),
        continues_as=of_returning,
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


VERSIONS = make_all("0.9", "0.9.0", negotiation.choose_0_9, "0.9")
