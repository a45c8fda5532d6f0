"""Paths of files: from `file:` URIs, and back.

A path is resolved here only as text. Links are resolved on the disk (`resolving`), where they cannot lead out of the tree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote_to_bytes

from sessions_app.workspace.errors import BadUri, Outside

Path = tuple[str, ...]
"""The names from the root on; () is the root."""

RESERVED = frozenset(("proc", "sys", "dev", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "run", "boot"))
"""First names that cannot be a workspace's: sandboxes need them."""
MOST_URI_CHARACTERS = 16 * 1024
MOST_PATH_BYTES = 3 * 1024
"""Of all names with their slashes. Below the kernel's 4,096, so that a link's text can be added to it."""
MOST_NAME_BYTES = 255
MOST_NAMES = 128
"""Depth of a path: the fallback resolver has one open descriptor for each name."""

_FILE = re.compile(r"file://(?:localhost)?(/[^?#]*)", re.IGNORECASE | re.DOTALL)
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_UNQUOTED = "!$&'()*+,;=:@"


def parse(uri: str) -> Path:
    """The path of a `file:` URI of this server, decoded once, without `.`, `..` and empty names.

    Raises ``Outside`` if `..` leads above the root, else ``BadUri``.
    """
    if len(uri) > MOST_URI_CHARACTERS:
        raise BadUri(f"the URI has {len(uri):,} characters; the limit is {MOST_URI_CHARACTERS:,}")
    match = _FILE.fullmatch(uri)
    if match is None:
        raise BadUri("not a URI of the form file:///path, without host, query and fragment")
    return resolve((), [_decoded(name) for name in match[1].split("/")])


def resolve(start: Path, names: Sequence[str]) -> Path:
    """The path of ``names`` relative to ``start``, without `.`, `..` and empty names."""
    path = list(start)
    for name in names:
        if name == "..":
            if not path:
                raise Outside("the path leads above the root")
            path.pop()
        elif name not in ("", "."):
            path.append(name)
    check(path)
    return tuple(path)


def uri_of(path: Path) -> str:
    """The `file:` URI of a path."""
    return "file:///" + "/".join(quote(name, safe=_UNQUOTED, errors="surrogateescape") for name in path)


def check(path: Sequence[str]) -> None:
    """Raises ``BadUri`` unless each name can be the name of a file and the path is within the limits."""
    if len(path) > MOST_NAMES:
        raise BadUri(f"the path has {len(path):,} names; the limit is {MOST_NAMES}")
    total = 0
    for name in path:
        size = _size_of(name)
        if size > MOST_NAME_BYTES:
            raise BadUri(f"a name in the path has {size:,} bytes; the limit is {MOST_NAME_BYTES}")
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise BadUri("a name in the path is empty, '.' or '..', or has a slash or a NUL in it")
        total += size + 1
    if total > MOST_PATH_BYTES:
        raise BadUri(f"the path has {total:,} bytes; the limit is {MOST_PATH_BYTES:,}")


def _size_of(name: str) -> int:
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        raise BadUri("a name in the path is not valid Unicode") from None


def _decoded(name: str) -> str:
    if _BAD_ESCAPE.search(name):
        raise BadUri("a % in the URI is not followed by two hexadecimal digits")
    try:
        decoded = unquote_to_bytes(name).decode()
    except UnicodeError:
        raise BadUri("a name in the URI is not valid UTF-8") from None
    if "/" in decoded or "\0" in decoded:
        raise BadUri("a name in the URI has an encoded slash or a NUL in it")
    return decoded
