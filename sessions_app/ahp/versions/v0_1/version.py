"""AHP 0.1 as a ``Version``."""

from sessions_app.ahp.version import ClientNotification, Version
from sessions_app.ahp.versions.v0_1 import dispatch, errors, negotiation, snapshots
from sessions_app.ahp.versions.v0_1.commands import COMMANDS, resources
from sessions_app.ahp.versions.v0_1.projection import actions, notifications
from sessions_app.ahp.versions.v0_1.wire.commands import NOTICES

VERSION = Version(
    name="0.1",
    listed=negotiation.SUPPORTED,
    choose=negotiation.choose,
    commands=COMMANDS,
    client_notifications={
        "dispatchAction": ClientNotification(NOTICES["dispatchAction"], dispatch.take, limited=True),
        "unsubscribe": ClientNotification(NOTICES["unsubscribe"], resources.unsubscribe),
    },
    errors=errors.TABLE,
    subject=errors.subject,
    snapshots=snapshots,
    projection=actions,
    summary_notifications=notifications,
)
