"""Web origins, to which short-lived tokens are bound. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

LONGEST = 300
_FORM = re.compile(r"https?://[a-z0-9._\[\]:-]+")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def fault(origin: str) -> str | None:
    """Why this is not an origin as browsers send it; None if it is one."""
    wanted = "must be a web origin as browsers send it, such as https://app.example.com or http://localhost:3000"
    if len(origin) > LONGEST or _FORM.fullmatch(origin) is None:
        return wanted
    try:
        parts = urlsplit(origin)
        _ = parts.port
    except ValueError:
        return wanted
    if not parts.hostname or origin.endswith((":", _DEFAULT_PORTS[parts.scheme])):
        return wanted
    return None


def is_from(origin: str, *, sent: str | None, fetch_site: str | None, host: str) -> bool:
    """Whether a request comes from a page of this origin. The other parameters are headers of the request.

    Browsers send ``Origin`` with every request to another origin and with every WebSocket. They leave it out of GET requests
    to the page's own origin, which ``Sec-Fetch-Site`` then confirms; no script can set either of them.
    """
    if sent is not None:
        return sent == origin
    return fetch_site == "same-origin" and is_host(origin, host)


def is_host(origin: str, host: str) -> bool:
    """Whether a request with this ``Host`` header went to the origin itself. The scheme is unknown behind a proxy."""
    scheme, _, place = origin.partition("://")
    return bool(host) and host.lower() in (place, place + _DEFAULT_PORTS.get(scheme, ""))
