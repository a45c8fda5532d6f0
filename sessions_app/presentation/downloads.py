"""Responses that are files to save."""

from __future__ import annotations

from django.http import StreamingHttpResponse

from sessions_app.core.base import database
from sessions_app.core.base.piping import Piped

_KINDS = {
    "jsonl": "application/jsonl; charset=utf-8",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "html": "application/octet-stream",
    "zip": "application/zip",
}


def response(body: Piped, name: str) -> StreamingHttpResponse:
    """A file to save: nothing of it is shown by the browser under this server's address."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    # Otherwise this thread would keep its connection until the client has read everything.
    database.release()
    return StreamingHttpResponse(body, content_type=_KINDS[name.rpartition(".")[2]], headers=headers)
