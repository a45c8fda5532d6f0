"""The URIs of sessions and chats in AHP 0.9 and 1.0 (V42-V45). Pure.

A session's chat has a URI that is made of the session's, so that a client which computes it finds it.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Literal

from sessions_app.ahp import uris

FAMILY = "1"
"""Of the sessions whose URI a client of 0.9 or 1.0 chose."""
_SESSION = "ahp-session:/"
_CHAT = "ahp-chat:/"
_CHAT_OF = "ahp-chat://default/"
_ID = re.compile(r"sess_[A-Za-z0-9]+")
_BY_ID = re.compile(r"(?P<scheme>[^:]+):/(?P<id>sess_[A-Za-z0-9]+)")
LONGEST = 1000
NOT_FOR_SESSIONS = frozenset(
    {
        *("ahp-root", "ahp-chat", "ahp-terminal", "ahp-resource-watch", "ahp-changeset"),
        *("ahp-automations", "ahp-automation-run", "ahp-otlp", "ahp-canvas", "mcp"),
    }
)
NOT_FOR_TERMINALS = NOT_FOR_SESSIONS - {"ahp-terminal"} | {"ahp-session"}
_ROOT_OF_0_1 = "agenthost:/root"


def session_uri(uri: str, family: str, agent: str, public_id: str, *, by_provider: bool = False) -> str:
    """The canonical URI of a session with this URI of the core.

    ``family``: of the version in which a client chose the URI; "" if none did. ``by_provider``: for editors that find an agent in
    the scheme.
    """
    if by_provider:
        return uri if family == FAMILY and uri.startswith(f"{agent}:/") else f"{agent}:/{public_id}"
    return uri if family == FAMILY else f"{_SESSION}{public_id}"


def chat_uri(session: str) -> str:
    """The canonical URI of the chat of the session with this URI, or its spelling for a spelling of the session's."""
    return _CHAT_OF + base64.urlsafe_b64encode(session.encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Spelled:
    """A URI as a client spelled it. ``session``: the session's URI in it; "" if it only contains ``public_id``."""

    kind: Literal["session", "chat"]
    session: str
    public_id: str = ""
    agent: str = ""


def spelled(uri: str) -> Spelled:
    if uri.startswith(_CHAT_OF):
        session = _decoded(uri[len(_CHAT_OF) :])
        found = spelled(session) if session and not session.startswith(_CHAT_OF) else Spelled("session", "")
        return Spelled("chat", found.session, found.public_id, found.agent)
    if uri.startswith(_CHAT) and _ID.fullmatch(uri, len(_CHAT)):
        return Spelled("chat", "", uri[len(_CHAT) :])
    named = _BY_ID.fullmatch(uri)
    if named is None:
        return Spelled("session", uri)
    return Spelled("session", uri, named["id"], "" if f"{named['scheme']}:/" == _SESSION else named["scheme"])


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def fault_of_new(uri: str) -> str | None:
    """Why a client cannot choose this URI for a session; None if it can."""
    return _fault_of_form(uri) or _fault_of_scheme(uri, NOT_FOR_SESSIONS, "session")


def fault_of_new_terminal(uri: str) -> str | None:
    """Why a client cannot choose this URI for a terminal; None if it can."""
    return _fault_of_form(uri) or _fault_of_scheme(uri, NOT_FOR_TERMINALS, "terminal")


def fault_of_new_chat(uri: str) -> str | None:
    """Why a client cannot choose this URI for a chat. What names the chat of a session by its form is not free."""
    if (fault := _fault_of_form(uri)) is not None:
        return fault
    other = _fault_of_scheme(uri, NOT_FOR_SESSIONS - {"ahp-chat"}, "chat") is not None
    if other or uri.lower().startswith(_CHAT_OF) or _BY_ID.fullmatch(uri):
        return "must not be a URI that names something else"
    return None


def _fault_of_form(uri: str) -> str | None:
    if len(uri) > LONGEST or not uri.isascii():
        return f"has at most {LONGEST:,} ASCII characters"
    return None if uris.scheme(uri) else "must be a URI with a scheme and a path"


def _fault_of_scheme(uri: str, taken: frozenset[str], what: str) -> str | None:
    scheme = uris.scheme(uri) or ""
    if scheme.lower() in taken or uri == _ROOT_OF_0_1:
        return f"must not be a URI of something else than a {what} ({scheme}:)"
    return None
