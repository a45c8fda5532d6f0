"""Modules that libraries import if they happen to be installed, and that no role of the server uses.

They come with extras, with development, or with other libraries. Each would take memory in every role, although its importer
can do without it: DRF's test client and its coloured pages, and Kombu's format of messages.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType

_COMPAT, _FORMATS = "rest_framework.compat", "kombu.serialization"
LEFT_OUT = {"requests": {_COMPAT}, "pygments": {_COMPAT}, "yaml": {_COMPAT, _FORMATS}}
"""By name, the modules that must not find it. Others may import it, for example the sign-in with OpenID Connect."""


class _Finder:
    """Finds nothing; raises for a module that is left out if its importer is the one above."""

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - the protocol of finders
        target: ModuleType | None = None,  # noqa: ARG004
    ) -> importlib.machinery.ModuleSpec | None:
        if (importers := LEFT_OUT.get(name)) is not None and _importer() in importers:
            raise ModuleNotFoundError(f"{name} is left out", name=name)
        return None


def _importer() -> str:
    """The name of the module whose own code runs the import."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith("<frozen importlib") or frame.f_globals is globals()):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


@contextmanager
def left_out() -> Iterator[None]:
    """Within the block, the importers above do not find their modules."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
