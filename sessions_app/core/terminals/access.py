"""Access control for terminals: the only functions that look up a terminal for a caller.

A key that is limited to some agents sees the terminals of their sessions, and those that it, or a key it was rotated from or
to, has created. A token that is limited to one session sees the terminals that this session has. Any other terminal, and
another tenant's, gives the same TerminalNotFound as one that never existed.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q, QuerySet

from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import TerminalNotFound
from sessions_app.models import LONGEST_URI, Session, Terminal

OF_COMMANDS = "agenthost-terminal:/"
"""How the URIs of terminals begin that no client has created; the public id follows."""


def visible(caller: Caller) -> QuerySet[Terminal]:
    return _seen(caller, Terminal.objects.filter(tenant_id=caller.tenant))


def kept(caller: Caller) -> QuerySet[Terminal]:
    """Disposed terminals of agents' commands, which the results of their calls still name."""
    rows = Terminal.with_disposed.filter(tenant_id=caller.tenant, disposed_at__isnull=False, command__isnull=False)
    return _seen(caller, rows.filter(Exists(Session.objects.filter(pk=OuterRef("claim_session")))))


def _seen(caller: Caller, rows: QuerySet[Terminal]) -> QuerySet[Terminal]:
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


def find_kept(caller: Caller, uris: Collection[str]) -> dict[str, Terminal]:
    """Those of which nothing but the end is left: they can be read, and do nothing any more."""
    ids = {uri.removeprefix(OF_COMMANDS) for uri in uris if uri.startswith(OF_COMMANDS) and not UNSTORABLE.search(uri)}
    return {row.uri: row for row in kept(caller).filter(public_id__in=ids)} if ids else {}


def is_taken(tenant: int, uri: str) -> bool:
    """Whether a terminal of the tenant has this URI, visible or not."""
    return Terminal.objects.filter(tenant_id=tenant, uri=uri).exists()


def lock(caller: Caller, terminal: Terminal) -> Terminal:
    """Read the row again and lock it until the transaction ends. A change of a terminal takes this lock first."""
    found = visible(caller).select_for_update(no_key=True).filter(pk=terminal.pk).first()
    if found is None:
        raise TerminalNotFound
    return found
