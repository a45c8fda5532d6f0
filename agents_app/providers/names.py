"""Names and ids that every vendor takes. Pure.

A model or a seed may have called what no tool can be named, or a session may go on with another vendor, whose
ids look different: the whole conversation would be refused for it ever after.
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
    """The id itself where it fits; else one made of it that no other call gets."""
    if wanted and len(wanted) <= LONGEST and not _UNFIT.search(wanted):
        return wanted
    return f"{_UNFIT.sub('_', wanted)[: LONGEST - 17]}_{hashlib.sha256(wanted.encode('utf-8', 'replace')).hexdigest()[:16]}"


def call_id_of_nine(wanted: str) -> str:
    """For a vendor whose ids are nine letters and digits."""
    if len(wanted) == 9 and wanted.isascii() and wanted.isalnum():
        return wanted
    return hashlib.sha256(wanted.encode("utf-8", "replace")).hexdigest()[:9]


def fitting(request: ModelRequest, fit: Callable[[str], str] = tool_name) -> tuple[ModelRequest, Mapping[str, str]]:
    """The request with names of tools that the vendor takes, and the tools' own names by those, where they differ."""
    if all(fit(schema.name) == schema.name for schema in request.tools):
        return request, {}
    taken = {schema.name for schema in request.tools}
    tools, back = [], {}
    for schema in request.tools:
        name = fit(schema.name)
        if name != schema.name:
            while name in taken or name in back:
                # Cut first: a name of full length would lose its number again.
                name = f"{name[: LONGEST - 8]}_{hashlib.sha256((schema.name + name).encode()).hexdigest()[:6]}"
            back[name] = schema.name
        tools.append(replace(schema, name=name))
    return replace(request, tools=tools), back
