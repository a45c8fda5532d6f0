"""The provider ``google-vertex``: the Gemini API at Vertex AI's addresses, with a service account instead of a key."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from agents_app import extras
from agents_app.errors import ProviderError
from agents_app.providers import exchange
from agents_app.providers import google as gemini
from agents_app.runtime.interface import ModelRequest, ProviderEvent

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_OWN_SETTINGS = ("google_project", "google_location")
_GOOGLES = ".googleapis.com"

_lock = threading.Lock()
_found: tuple[Any, str | None] | None = None


class GoogleVertex:
    """The provider ``google-vertex`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return _stream(request)


async def _stream(request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
    project, location = (request.settings.get(name) for name in _OWN_SETTINGS)
    fit = replace(request, settings={name: value for name, value in request.settings.items() if name not in _OWN_SETTINGS})
    parent, bearer = "", None
    if not request.api_key:
        # A key belongs to a project, so no project is needed with one.
        if request.base_url is not None and not (urlsplit(request.base_url).hostname or "").endswith(_GOOGLES):
            raise ProviderError("configuration", "google-vertex: the server's own credentials are sent to Google's hosts only")
        bearer, own_project = await asyncio.to_thread(_token)
        project = project or own_project
        if not project:
            raise ProviderError("configuration", "google-vertex: no project; set google_project in the agent's settings")
    location = location or "global"
    if project:
        parent = f"/projects/{quote(str(project), safe='')}/locations/{quote(str(location), safe='')}"
    host = f"{location}-aiplatform" if location != "global" and project else "aiplatform"
    model = request.model if "/" in request.model else f"publishers/google/models/{request.model}"
    base = request.base_url or f"https://{host}.googleapis.com"
    url = exchange.address(base, f"/v1{parent}/{quote(model)}{gemini.METHOD}", alt="sse")
    answer = exchange.stream(fit, partial(gemini.call, fit, url, "google-vertex", bearer))
    try:
        async for batch in answer:
            yield batch
    finally:
        await answer.aclose()


def _token() -> tuple[str, str | None]:
    """A valid token of the default credentials, and their project. Blocks."""
    global _found
    # A turn may go on by a definition that another process loaded, with other packages.
    if (missing := extras.missing_for_provider("google-vertex")) is not None:
        raise ProviderError("configuration", missing)
    import google.auth
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    try:
        with _lock:
            if _found is None:
                _found = google.auth.default(scopes=[_SCOPE])
            credentials, project = _found
            if not credentials.valid:
                credentials.refresh(Request())
            return str(credentials.token), project
    except GoogleAuthError as problem:
        detail = f"google-vertex: there is neither an api_key nor are there default credentials: {type(problem).__name__}"
        raise ProviderError("configuration", detail) from None
