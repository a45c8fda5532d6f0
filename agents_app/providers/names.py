"""Converts names of tools and ids of calls to forms that every vendor accepts. Pure.

A model or a seed may use a name that is not valid for a tool, and a session may continue with a vendor whose ids have
another form. Such a conversation would be refused in every later request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from agents_app.runtime.interface import ModelRequest

LONGEST = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(name: str) -> str:
    return _UNFIT.sub("_", name)[:LONGEST] or "_"


def call_id(wanted: str) -> str:
    """``wanted`` if it is valid, else a unique id derived from it."""
    if wanted and len(wanted) <= LONGEST and not _UNFIT.search(wanted):
        return wanted
    return f"{_UNFIT.sub('_', wanted)[: LONGEST - 17]}_{hashlib.sha256(wanted.encode('utf-8', 'replace')).hexdigest()[:16]}"


def call_id_of_nine(wanted: str) -> str:
    """``wanted`` as an id of nine letters and digits, which one vendor requires."""
    if len(wanted) == 9 and wanted.isascii() and wanted.isalnum():
        return wanted
    return hashlib.sha256(wanted.encode("utf-8", "replace")).hexdigest()[:9]


def fitting(request: ModelRequest, fit: Callable[[str], str] = tool_name) -> tuple[ModelRequest, Mapping[str, str]]:
    """The request with valid names of tools, and the original names by the changed ones."""
    if all(fit(schema.name) == schema.name for schema in request.tools):
        return request, {}
    taken = {schema.name for schema in request.tools}
    tools, back = [], {}
    for schema in request.tools:
        name = fit(schema.name)
        if name != schema.name:
            while name in taken or name in back:
                # Cut first, so that a name of full length keeps its number.
                name = f"{name[: LONGEST - 8]}_{hashlib.sha256((schema.name + name).encode()).hexdigest()[:6]}"
            back[name] = schema.name
        tools.append(replace(schema, name=name))
    return replace(request, tools=tools), back
