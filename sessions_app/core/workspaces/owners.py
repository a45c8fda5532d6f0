"""As which users sandboxes run, and who so owns the files of workspaces, if this server is root."""

from __future__ import annotations

import os

from django.conf import settings

from sessions_app.workspace import sandbox


def uid_of(tenant: int | None) -> int:
    """The user and group of a tenant's sandboxes and files; None: of sandboxes that are no tenant's.

    Tenants share a number only if there are more tenants than numbers (``AGENTHOST_SANDBOX_UIDS``).
    """
    first: int = settings.AGENTHOST_SANDBOX_UID
    return first if tenant is None else first + tenant % int(settings.AGENTHOST_SANDBOX_UIDS)


def of(tenant: int) -> tuple[int, int] | None:
    """Who owns new files of a tenant's workspaces; None: this process's user."""
    uid = uid_of(tenant)
    return (uid, uid) if os.geteuid() == 0 else None


def fault() -> str | None:
    """Why no sandbox can be had as one of these users, in one sentence. Blocks: sandboxes are tried; the answer is kept."""
    first, count, root = settings.AGENTHOST_SANDBOX_UID, settings.AGENTHOST_SANDBOX_UIDS, settings.AGENTHOST_SANDBOX_ROOT
    directory = settings.AGENTHOST_WORKSPACES_DIR
    # The last number too: a container may have fewer than the range.
    for uid in {first: None, first + count - 1: None}:
        if why := sandbox.check(root=root, uid=uid, directory=directory):
            return why if uid == first else f"{why} (user {uid}: AGENTHOST_SANDBOX_UID and AGENTHOST_SANDBOX_UIDS)"
    return None
