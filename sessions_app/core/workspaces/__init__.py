"""Workspaces: directory trees of a tenant that its clients, sessions and terminals share (docs/workspaces.md).

``places`` finds the workspace of a URI · ``making`` makes workspaces and binds sessions to them · ``directories`` places of
terminals and tools · ``files`` the operations of clients on files · ``trees`` opens
and makes the trees · ``templates`` their first files · ``room`` quotas · ``volume`` the file system they are on ·
``watches`` of clients ·
``upkeep`` removal and exact counts · ``inspection`` what operators see of files · ``threads`` where all of this is called.

The functions are synchronous; they use the database and then the disk, and hold no connection while the disk works. Coroutines
call them with ``threads.run``.
"""

from sessions_app.core.workspaces.directories import of_row, of_session, of_terminal
from sessions_app.core.workspaces.places import Place

__all__ = ["Place", "of_row", "of_session", "of_terminal"]
