"""Opens the trees of workspaces, and makes them at their first use."""

from __future__ import annotations

import logging

from sessions_app.core.base import database
from sessions_app.core.workspaces import owners, templates, volume
from sessions_app.core.workspaces.places import Place
from sessions_app.workspace.guarding import Guard
from sessions_app.workspace.ledger import Ledger
from sessions_app.workspace.tree import Tree

log = logging.getLogger(__name__)


def tree_of(place: Place, ledger: Ledger | None = None, *, make: bool = False, guard: Guard | None = None) -> Tree:
    """The tree of a place. ``guard``: refuses paths.

    ``make``: it is created if it does not exist yet; one with a template is created in any case.
    """
    database.release()
    volume.require()
    tree = Tree(place.directory, owner=owners.of(place.tenant), ledger=ledger, guard=guard)
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


def give_to_owner(place: Place) -> None:
    """Give a tree to the user of its tenant's sandboxes, before a program is started in it. Blocks if it was another's.

    So the numbers of users can be changed: this server, as root, reads and writes the files of all of them.
    """
    tree = Tree(place.directory, owner=owners.of(place.tenant))
    if tree.give_to_owner():
        log.info("workspace_has_another_owner workspace=%s uid=%d", place.public_id, owners.uid_of(place.tenant))
