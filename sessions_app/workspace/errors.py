"""Errors of the file mechanism.

A message names the path inside the workspace, never a path of the server.
"""

from __future__ import annotations


class FileError(Exception):
    """Base of all errors of workspaces' files."""


class BadUri(FileError):
    """The text is not the URI of a file that this server could have; or a name or path is too long."""


class Outside(FileError):
    """The path leads out of the tree: by `..`, by a link, or into another file system."""


class Missing(FileError):
    """There is no such file, or a directory on the way to it is missing."""


class NotADirectory(FileError):
    """A directory is needed, and something else has this name."""


class IsADirectory(FileError):
    """A file is needed, and a directory has this name."""


class Exists(FileError):
    """Something has this name already."""


class Changed(FileError):
    """The file is not the one that the caller has seen: it was changed, replaced or deleted since."""


class NotEmpty(FileError):
    """The directory has entries, and they were not to be removed with it."""


class IntoItself(FileError):
    """A directory cannot be copied or moved into itself, nor replace a directory that contains it."""


class TooLarge(FileError):
    """More bytes than the limit."""


class TooMany(FileError):
    """More entries, or deeper directories, than the limit."""


class TooSlow(FileError):
    """The time limit has passed."""


class NoRoom(FileError):
    """The quota is reached, or the disk is full."""


class NotPermitted(FileError):
    """The permission bits of the file or its directory do not let the server in."""


class Refused(FileError):
    """The tree's guard does not let the operation use this path.

    ``path``: the real path, if asking for it can help; None: asking cannot help.
    """

    def __init__(self, path: tuple[str, ...] | None) -> None:
        self.path = path
        super().__init__("not permitted" if path is None else "a permission is needed")


class Unsupported(FileError):
    """Not a regular file or directory, a chain of too many links, or an operation that the tree's root does not have."""


class BadArchive(FileError):
    """Not an archive that can be unpacked, or one with an entry that is refused."""


class BadPattern(FileError):
    """Not a glob pattern or regular expression."""
