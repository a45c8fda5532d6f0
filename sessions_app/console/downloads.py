"""Answers that are files: written to a temporary file first, so that an error is reported before the download begins."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

_PIECE = 256 * 1024


def from_writer(
    request: HttpRequest, write: Callable[[IO[bytes]], object], *, name: str, content_type: str
) -> StreamingHttpResponse:
    """The file that ``write`` writes, as an attachment that no browser opens as a page of this server."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the answer was sent
    try:
        write(file)
        size = file.tell()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    # The server sends pieces as they are read; a plain iterator would be read to its end first.
    pieces = _InLoop(file) if isinstance(request, ASGIRequest) else _Pieces(file)
    response = StreamingHttpResponse(pieces, content_type=content_type)
    response["Content-Length"] = str(size)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    response["X-Content-Type-Options"] = "nosniff"
    return response


class _Pieces:
    """The pieces of a file. Django closes it with the response, also if nothing was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._file.read(_PIECE):
            yield piece

    def close(self) -> None:
        self._file.close()


class _InLoop:
    """The same, read in threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(self._file.read, _PIECE):
            yield piece

    def close(self) -> None:
        self._file.close()
