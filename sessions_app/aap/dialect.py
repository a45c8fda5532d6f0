"""What a version of the protocol says otherwise than version 3.

The seam between the versions. The views speak version 3's documents among themselves and have a dialect,
given where their addresses are (urls.py): it puts requests into version 3's words and answers into its
own. It changes names and shapes of JSON alone; endpoints that version 3 lacks are views in the older
version's own module. Pure: no rows, no clock, no waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sessions_app.aap.openapi.description import Description

Document = dict[str, Any]
Path = tuple[str | int, ...]


class Dialect:
    """Version 3 itself: nothing is said otherwise.

    An older version derives from the next newer one and overrides what differs between those two, so a
    request climbs, and an answer descends, one version at a time. No method changes what it was given.
    """

    version = 3

    def lifted(self, body: Document) -> Document:
        """The body of a request in version 3's words. What has a wrong shape stays as it is: version 3 refuses it."""
        return body

    def place(self, path: Path) -> Path:
        """Where in this version's body stands what version 3 finds at ``path``."""
        return path

    def meta(self, document: Document) -> Document:
        return {**document, "version": self.version}

    def session(self, document: Document) -> Document:
        return document

    def sessions(self, document: Document) -> Document:
        """A page of the list."""
        return document

    def description(self) -> Description:
        """The version for its documentation, which is not read by requests and so not loaded for them."""
        from sessions_app.aap.versions import v3_description

        return v3_description.description()
