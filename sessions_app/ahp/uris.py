"""The syntax of URIs that clients may choose (R60)."""

from __future__ import annotations

import re

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):"
    r"(?://(?P<authority>(?:[A-Za-z0-9._~!$&'()*+,;=:@\[\]-]|%[0-9A-Fa-f]{2})*)(?=[/?#]|$))?"
    r"(?P<path>(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)"
    r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
    r"(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
)


def scheme(uri: str) -> str | None:
    """The scheme of a syntactically valid URI (RFC 3986) that has a path; None for everything else."""
    found = _URI.fullmatch(uri)
    return found["scheme"] if found is not None and found["path"] else None
