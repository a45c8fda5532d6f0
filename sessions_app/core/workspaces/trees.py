"""Opens the trees of workspaces, and makes them at their first use."""

from __future__ import annotations

import os

from django.conf import settings

from sessions_app.core.base import database
from sessions_app.core.workspaces import templates, volume
from sessions_app.core.workspaces.places import Place
from sessions_app.workspace.guarding import Guard
from sessions_app.workspace.ledger import Ledger
from sessions_app.workspace.tree import Tree


def tree_of(place: Place, ledger: Ledger | None = None, *, make: bool = False, guard: Guard | None = None) -> Tree:
    """The tree of a place. ``guard``: refuses paths.

    ``make``: it is created if it does not exist yet; one with a template is created in any case.
    """
    database.release()
    volume.require()
    tree = Tree(place.directory, owner=owner(), ledger=ledger, guard=guard)
    if tree.exists():
        return tree
    agent = templates.agent_of(place.workspace)
    if make or agent is not None:
        # The volume may have been unmounted a moment ago: nothing is created in its mount point.
        volume.require(now=True)
        if agent is None:
            tree.create()
        else:
            templates.fill(tree, place, agent)
    return tree


def owner() -> tuple[int, int] | None:
    """Who owns new files: sandboxes run as this user if the server is root."""
    uid: int = settings.AGENTHOST_SANDBOX_UID
    return (uid, uid) if os.geteuid() == 0 else None
