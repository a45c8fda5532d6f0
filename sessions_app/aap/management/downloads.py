"""Files to save: answers that are streamed with bounded memory, and cut when they cannot be completed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from sessions_app.aap.views import Streamed, caller_of, stream_slot, streaming
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.piping import Piped
from sessions_app.core.tenancy import key_watch
from sessions_app.core.tenancy.key_watch import Slot

_KINDS = {"jsonl": "application/jsonl; charset=utf-8", "html": "application/octet-stream", "zip": "application/zip"}


class KeyEnded(Exception):
    """The caller's key has ended while the file was sent."""


def answer(request: Request, name: str, begin: Callable[[Caller], Piped]) -> HttpResponseBase:
    """The file that ``begin`` writes. It counts as one of the caller's streams, and ends with the caller's key."""
    caller, kind = caller_of(request), _KINDS[name.rpartition(".")[2]]
    if request.method == "HEAD":
        # Nothing is taken away.
        return HttpResponse(content_type=kind)
    with stream_slot(caller) as slot:
        answer: Streamed = streaming(slot, _body(slot.keep(), begin(caller)), kind)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


async def _body(slot: Slot, file: Piped) -> AsyncGenerator[bytes]:
    try:
        with key_watch.watching(slot) as key:
            async for chunk in file:
                if key.ended:
                    # What looks complete must be complete, so the answer has no end.
                    raise KeyEnded
                yield chunk
    finally:
        file.close()
