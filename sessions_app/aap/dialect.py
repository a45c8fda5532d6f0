"""Conversions between version 3's JSON and an older version's.

The views work with version 3's documents. Each has a dialect, set where its address is defined (urls.py), which
converts requests to version 3 and answers from it. A dialect changes names and shapes of JSON only; endpoints that
version 3 does not have are views in the older version's own module. Pure: no rows, no clock, no waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sessions_app.aap.openapi.description import Description

Document = dict[str, Any]
Path = tuple[str | int, ...]


class Dialect:
    """Version 3 itself: converts nothing.

    An older version derives from the next newer one and overrides the differences between those two, so each document
    is converted one version at a time. No method changes its argument.
    """

    version = 3

    def to_v3(self, body: Document) -> Document:
        """Convert a request's body to version 3. Values of a wrong shape stay as they are: version 3 refuses them."""
        return body

    def fault_path(self, path: Path) -> Path:
        """The path in this version's body for a path in version 3's."""
        return path

    def meta(self, document: Document) -> Document:
        return {**document, "version": self.version}

    def session(self, document: Document) -> Document:
        return document

    def sessions(self, document: Document) -> Document:
        """Convert one page of the list."""
        return document

    def description(self) -> Description:
        """The version's documentation. Requests do not need it, so its modules are loaded here only."""
        from sessions_app.aap.versions import v3_description

        return v3_description.description()
