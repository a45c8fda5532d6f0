"""Access control for terminals: the only functions that look up a terminal for a caller.

A key that is limited to some agents sees the terminals of their sessions, and those that it, or a key it was rotated from or
to, has created. A token that is limited to one session sees the terminals that this session has. Any other terminal, and
another tenant's, gives the same TerminalNotFound as one that never existed.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q, QuerySet

from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import TerminalNotFound
from sessions_app.models import LONGEST_URI, Terminal


def visible(caller: Caller) -> QuerySet[Terminal]:
    rows = Terminal.objects.filter(tenant_id=caller.tenant)
    if caller.session is not None:
        return rows.filter(claim_session=caller.session)
    if caller.key_agents is None:
        return rows
    return rows.filter(Q(line=caller.line) | Q(agent__in=sorted(caller.key_agents)))


def find(caller: Caller, uri: str) -> Terminal:
    found = find_all(caller, [uri]).get(uri)
    if found is None:
        raise TerminalNotFound
    return found


def find_all(caller: Caller, uris: Collection[str]) -> dict[str, Terminal]:
    """The existing terminals with exactly these URIs, in one query."""
    usable = {uri for uri in uris if len(uri) <= LONGEST_URI and not UNSTORABLE.search(uri)}
    return {row.uri: row for row in visible(caller).filter(uri__in=usable)} if usable else {}


def is_taken(tenant: int, uri: str) -> bool:
    """Whether a terminal of the tenant has this URI, visible or not."""
    return Terminal.objects.filter(tenant_id=tenant, uri=uri).exists()


def lock(caller: Caller, terminal: Terminal) -> Terminal:
    """Read the row again and lock it until the transaction ends. A change of a terminal takes this lock first."""
    found = visible(caller).select_for_update(no_key=True).filter(pk=terminal.pk).first()
    if found is None:
        raise TerminalNotFound
    return found
