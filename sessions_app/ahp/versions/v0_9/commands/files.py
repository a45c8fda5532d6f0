"""Commands about files in workspaces (V240-V244). What is the same in 0.1 comes from there."""

from __future__ import annotations

import mimetypes
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sessions_app.ahp.versions.v0_1.commands import files as v0_1
from sessions_app.ahp.versions.v0_1.commands.files import copy, delete, file_uri, list_entries, move, run
from sessions_app.ahp.versions.v0_1.projection.values import CONTENT
from sessions_app.ahp.versions.v0_9 import addresses
from sessions_app.core.base import times
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import ContentNotFound
from sessions_app.core.workspaces import files
from sessions_app.core.workspaces.access import Grants
from sessions_app.workspace.writing import Splice

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

__all__ = ["copy", "delete", "list_entries", "make_directory", "move", "read", "request", "resolve", "write"]

_TYPES = {"file": "file", "directory": "directory", "link": "symlink"}


async def read(connection: Connection, params: Any) -> Any:
    return await v0_1.read(connection, await _as_stored(connection, params))


async def request(connection: Connection, params: Any) -> Any:
    return await v0_1.request(connection, await _as_stored(connection, params))


async def _as_stored(connection: Connection, params: Any) -> Any:
    """The params; the URI of a session's content begins with the URI that the session has in the core."""
    if not v0_1.is_content(params["uri"]):
        return params
    return {**params, "uri": await connection.in_database(_content_uri, connection.caller, params["uri"])}


def _content_uri(caller: Caller, uri: str) -> str:
    session, _, name = uri.rpartition(CONTENT)
    found = addresses.find(caller, session)
    if found is None or found.kind != "session":
        raise ContentNotFound
    return f"{found.uri}{CONTENT}{name}"


async def write(connection: Connection, params: Any) -> Any:
    await run(connection, _write, connection.caller, params, connection.grants)
    return {}


def _write(caller: Caller, params: Any, grants: Grants) -> None:
    files.write(
        caller,
        file_uri(params["uri"]),
        v0_1.content_of(params),
        grants,
        create_only=params.get("createOnly", False),
        splice=_splice(params.get("mode", "truncate"), params.get("position", 0)),
        if_match=params.get("ifMatch"),
    )


def _splice(mode: str, position: int) -> Splice | None:
    match mode:
        case "append":
            return Splice(position, from_end=True)
        case "insert":
            return Splice(position)
        case _:
            return Splice(position, cuts=True) if position else None


async def resolve(connection: Connection, params: Any) -> Any:
    uri: str = params["uri"]
    if v0_1.is_content(uri):
        stored = await _as_stored(connection, params)
        data, kind = await run(connection, v0_1.content, connection.caller, stored["uri"])
        return {"uri": uri, "type": "file", "size": len(data), **({} if kind is None else {"contentType": kind})}
    follow = params.get("followSymlinks", True)
    found = await run(connection, files.resolve, connection.caller, file_uri(uri), connection.grants, follow=follow)
    is_file = found.kind == "file"
    optional = {
        "size": None if found.kind == "directory" else found.size,
        "mtime": times.text_of_unix(found.modified),
        "ctime": None if found.created is None else times.text_of_unix(found.created),
        "contentType": mimetypes.guess_type(unquote(found.uri), strict=False)[0] if is_file else None,
        "etag": found.etag or None,
    }
    present = {name: value for name, value in optional.items() if value is not None}
    return {"uri": found.uri, "type": _TYPES[found.kind], **present}


async def make_directory(connection: Connection, params: Any) -> Any:
    await run(connection, files.make_directory, connection.caller, file_uri(params["uri"]), connection.grants)
    return {}
