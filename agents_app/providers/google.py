"""The provider ``google``: Google's Gemini API, and any server with the same API."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from agents_app.providers import exchange, google_request, names
from agents_app.providers.answer_reader import fields, items, word
from agents_app.providers.google_stream import GoogleStream
from agents_app.providers.server_errors import ServerError
from agents_app.runtime.interface import ModelRequest, ProviderEvent

BASE_URL = "https://generativelanguage.googleapis.com"
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s", re.ASCII)
_VERSION = re.compile(r"/v\d\w*$")


class Google:
    """The provider ``google`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        base = request.base_url or BASE_URL
        version = "" if _VERSION.search(urlsplit(base).path.rstrip("/")) else "/v1beta"
        model = request.model if "/" in request.model else f"models/{request.model}"
        url = exchange.address(base, f"{version}/{quote(model)}{METHOD}", alt="sse")
        return exchange.stream(request, partial(call, request, url))


METHOD = ":streamGenerateContent"


def call(request: ModelRequest, url: str, vendor: str = "google", bearer: str | None = None) -> exchange.Call:
    """The HTTP call of a request. ``bearer``: a token to use instead of a key."""
    fit, back = names.fitting(request, google_request.tool_name)
    headers = exchange.headers(request, "x-goog-api-key", "{}")
    if bearer is not None and not any(name.lower() == "authorization" for name in request.headers):
        headers["Authorization"] = f"Bearer {bearer}"
    return exchange.Call(
        vendor=vendor,
        url=url,
        headers=headers,
        body=google_request.body(fit),
        answer=GoogleStream,
        refused=_refused,
        tool_names=back,
    )


def _refused(document: Any, status: int, headers: Mapping[str, str]) -> ServerError:
    """The classified error; Google sends the time until a retry in the error, not in a header."""
    problem = exchange.plainly_refused(document, status, headers)
    whole = document[0] if isinstance(document, list) and document else document
    for detail in items(fields(fields(whole).get("error")).get("details")):
        if match := _SECONDS.fullmatch(word(fields(detail).get("retryDelay"))):
            problem.wait = float(match[1])
    return problem
