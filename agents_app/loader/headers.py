"""Reads header values of an agents file."""

from __future__ import annotations

import re

from agents_app.loader.table import CONTROL, Table

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN = {
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "accept-encoding",
}


def read(table: Table) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in table.mapping("headers").items():
        if not _NAME.fullmatch(name):
            table.fault("headers", f"{name!r} is not a header's name")
        elif name.lower() in _OWN:
            table.fault("headers", f"{name} is set by the server itself")
        elif not isinstance(value, str):
            table.fault("headers", f"{name} must be a string")
        elif CONTROL.search(value):
            table.fault("headers", f"{name} must be one line")
        else:
            headers[name] = value
    return headers
