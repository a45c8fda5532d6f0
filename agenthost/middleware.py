"""Middleware between the guard and the views: the request's id; the pages' static files."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from http import HTTPStatus
from pathlib import Path
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from agenthost.guard import new_request_id, sane_request_id
from sessions_app.core.base import log_context


def _identify(request: HttpRequest) -> str:
    if isinstance(request, ASGIRequest):
        request_id = request.scope.get("agenthost", {}).get("request_id", "")
    else:
        # Without the guard: Django's own test client, or a WSGI server.
        given = request.headers.get("X-Request-Id", "")
        request_id = given if sane_request_id(given) else ""
    request.META["agenthost.request_id"] = request_id = request_id or new_request_id()
    return str(request_id)


def _complete(response: HttpResponseBase, request_id: str) -> HttpResponseBase:
    response.headers.setdefault("X-Request-Id", request_id)
    # For people's pages CommonMiddleware does this; the server would send what has no length in chunks.
    if isinstance(response, HttpResponse) and not response.streaming:
        response.headers.setdefault("Content-Length", str(len(response.content)))
    return response


@sync_and_async_middleware
def known_request(get_response: Any) -> Any:
    """Copies the guard's request id to ``request.META["agenthost.request_id"]`` and to the log lines."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            request_id = _identify(request)
            with log_context.about(request=request_id):
                response: HttpResponseBase = await get_response(request)
            return _complete(response, request_id)

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        request_id = _identify(request)
        with log_context.about(request=request_id):
            response: HttpResponseBase = get_response(request)
        return _complete(response, request_id)

    return handle


def _unbelieved_https(request: HttpRequest) -> HttpResponse | None:
    """The answer to a request that a proxy sent on as HTTPS, if that proxy is not believed.

    Django would redirect it to HTTPS, the proxy would send it on in the same way, and the browser would go in circles.
    """
    if not settings.SECURE_SSL_REDIRECT or request.is_secure() or request.headers.get("X-Forwarded-Proto", "") != "https":
        return None
    text = (
        f"This request came from {request.META.get('REMOTE_ADDR') or 'an unknown address'} with X-Forwarded-Proto: https, but "
        "that address is not in AGENTHOST_PROXIES. Add the address of your proxy there.\n"
    )
    return HttpResponse(text, status=421, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})


@sync_and_async_middleware
def believed_scheme(get_response: Any) -> Any:
    """Names the setting that is missing when a proxy's X-Forwarded-Proto is not believed."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            response: HttpResponseBase = _unbelieved_https(request) or await get_response(request)
            return response

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = _unbelieved_https(request) or get_response(request)
        return response

    return handle


class _Catalogue(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    """Every static file of the installed applications, found where it was installed: nothing has to be collected."""

    files: dict[str, StaticFile]


@functools.cache
def _catalogue() -> _Catalogue:
    return _Catalogue(None)


_LONGEST_PART = 65536
"""A longer range of a file would be a copy of its own for each client, so the whole file is sent instead."""


@functools.cache
def _content(path: str) -> bytes:
    """Of one of the catalogue's files, which have a dozen megabytes together: kept once, however many clients read it slowly."""
    return Path(path).read_bytes()


def _static_answer(request: HttpRequest) -> HttpResponse | None:
    static_file = _catalogue().files.get(request.path_info)
    if static_file is None:
        return None
    found = static_file.get_response(request.method, request.META)
    if found.status == HTTPStatus.PARTIAL_CONTENT and int(dict(found.headers)["Content-Length"]) > _LONGEST_PART:
        if found.file is not None:
            found.file.close()
        found = static_file.get_response(request.method, {})
    with contextlib.closing(found.file) if found.file is not None else contextlib.nullcontext() as file:
        if file is None:
            body = b""
        elif found.status == HTTPStatus.PARTIAL_CONTENT:
            body = file.read()
        else:
            body = _content(file.name)
    response = HttpResponse(body, status=int(found.status))
    del response["Content-Type"]
    for name, value in found.headers:
        response[name] = value
    return response


@sync_and_async_middleware
def static_files(get_response: Any) -> Any:
    """Serves what stands under STATIC_URL."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            if request.path_info.startswith(settings.STATIC_URL):
                answer = await asyncio.to_thread(_static_answer, request)
                if answer is not None:
                    return answer
            response: HttpResponseBase = await get_response(request)
            return response

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(settings.STATIC_URL):
            answer = _static_answer(request)
            if answer is not None:
                return answer
        response: HttpResponseBase = get_response(request)
        return response

    return handle
