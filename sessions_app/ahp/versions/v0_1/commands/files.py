"""Commands about files in workspaces (R330-R339)."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import unquote

from sessions_app.ahp import uris
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import EncodedResult
from sessions_app.ahp.versions.v0_1 import errors
from sessions_app.ahp.versions.v0_1.projection.values import CONTENT
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AccessDenied, ContentNotFound
from sessions_app.core.records import file_edits, tool_contents
from sessions_app.core.workspaces import files, threads
from sessions_app.core.workspaces.access import Grants

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")

_PIECE = 64 * 1024


async def run(connection: Connection, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await threads.run(connection.caller.tenant, fn, *args, **kwargs)


def file_uri(uri: str, member: str = "uri") -> str:
    """The URI, if it can be one of a file."""
    scheme = uri.partition(":")[0]
    if scheme.lower() == "file":
        return uri
    if not scheme or uris.scheme(uri) is None:
        raise jsonrpc.invalid_params(f"params.{member} must be a URI")
    if CONTENT in uri:
        raise ContentNotFound
    raise errors.not_found()


async def read(connection: Connection, params: Any) -> EncodedResult:
    uri: str = params["uri"]
    of_session = is_content(uri)
    read = content if of_session else partial(_of_file, grants=connection.grants)
    return await run(connection, _read, read, connection.caller, uri if of_session else file_uri(uri), params.get("encoding"))


def is_content(uri: str) -> bool:
    return CONTENT in uri and uris.scheme(uri) is not None and not uri.lower().startswith("file:")


def content(caller: Caller, uri: str) -> tuple[bytes, str | None]:
    """A content of a session and its type (R339)."""
    session, _, name = uri.rpartition(CONTENT)
    if tool_contents.is_name(name):
        return tool_contents.read(caller, session, name)
    return file_edits.content(caller, session, name), None


def _of_file(caller: Caller, uri: str, grants: Grants) -> tuple[bytes, str | None]:
    return files.read(caller, uri, grants), mimetypes.guess_type(unquote(uri), strict=False)[0]


_Read = Callable[[Caller, str], tuple[bytes, str | None]]


def _read(read: _Read, caller: Caller, uri: str, encoding: str | None) -> EncodedResult:
    data, kind = read(caller, uri)
    text: str | None = None
    if encoding != "base64":
        try:
            text = data.decode()
        except UnicodeDecodeError:
            encoding = "base64"
    members = [f'"data":{_base64(data) if text is None else _string(text)}', f'"encoding":"{encoding or "utf-8"}"']
    if kind is not None:
        members.append(f'"contentType":{jsonrpc.encode(kind)}')
    return EncodedResult("{" + ",".join(members) + "}")


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode("ascii")}"'


def _string(text: str) -> str:
    """As JSON, in pieces: the encoder holds the interpreter's lock for each of them."""
    pieces = (jsonrpc.encode(text[begin : begin + _PIECE])[1:-1] for begin in range(0, len(text), _PIECE))
    return f'"{"".join(pieces)}"'


async def write(connection: Connection, params: Any) -> Any:
    await run(connection, _write, connection.caller, params, connection.grants)
    return {}


def _write(caller: Caller, params: Any, grants: Grants) -> None:
    files.write(caller, file_uri(params["uri"]), content_of(params), grants, create_only=params.get("createOnly", False))


def content_of(params: Any) -> bytes:
    """The bytes that are to be written."""
    data, is_text = params["data"], params["encoding"] == "utf-8"
    try:
        return data.encode() if is_text else base64.b64decode(data, validate=True)
    except UnicodeEncodeError:
        raise jsonrpc.invalid_params("params.data has a half of a surrogate pair, which UTF-8 cannot encode") from None
    except (ValueError, binascii.Error):
        raise jsonrpc.invalid_params("params.data is not base64") from None


async def list_entries(connection: Connection, params: Any) -> Any:
    children = await run(connection, files.children, connection.caller, file_uri(params["uri"]), connection.grants)
    return {"entries": [{"name": each.name, "type": "directory" if each.is_directory else "file"} for each in children]}


async def copy(connection: Connection, params: Any) -> Any:
    return await _transfer(connection, files.copy, params)


async def move(connection: Connection, params: Any) -> Any:
    return await _transfer(connection, files.move, params)


async def _transfer(connection: Connection, fn: Callable[..., None], params: Any) -> Any:
    ends = file_uri(params["source"], "source"), file_uri(params["destination"], "destination")
    await run(connection, fn, connection.caller, *ends, connection.grants, fail_if_exists=params.get("failIfExists", False))
    return {}


async def delete(connection: Connection, params: Any) -> Any:
    recursive = params.get("recursive", False)
    await run(connection, files.delete, connection.caller, file_uri(params["uri"]), connection.grants, recursive=recursive)
    return {}


async def request(connection: Connection, params: Any) -> Any:
    """Grants what the operator's rules leave to the client to ask for, until the connection ends (R337)."""
    uri, wanted = params["uri"], {"read": params.get("read", False), "write": params.get("write", False)}
    if is_content(uri):
        # It is readable if it exists, and never writable.
        await run(connection, content, connection.caller, uri)
        if wanted["write"]:
            raise AccessDenied
        return {}
    await run(connection, files.request, connection.caller, file_uri(uri), connection.grants, **wanted)
    return {}
