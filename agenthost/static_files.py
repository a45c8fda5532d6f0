"""Static files, served from the installed packages under addresses that change with their content.

The address of a page's file is ``/static/DIGEST/NAME``. The digest is of all files together: imports between modules are
relative, so they lead to the same release. Browsers keep such a file for ever, and revalidate every other one at each use.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from http import HTTPStatus
from pathlib import Path
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

_DIGITS = 16
_FOR_EVER = "max-age=31536000, public, immutable"
_LONGEST_RANGE = 65536
"""Each response to a range request has its own copy of the range, so for longer ones the whole file is sent."""


class _Catalogue(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    """The static files of the installed applications, without collectstatic."""

    files: dict[str, StaticFile]

    def immutable_file_test(self, _path: str, _url: str) -> bool:
        """Would ask the storage, whose addresses follow from this catalogue."""
        return False


@functools.cache
def _catalogue() -> _Catalogue:
    return _Catalogue(None)


@functools.cache
def _content(path: str) -> bytes:
    """The content of a static file (a dozen megabytes in total), in memory once for all clients."""
    return Path(path).read_bytes()


@functools.cache
def digest() -> str:
    """Of all files with their names. The same in every process of a release, whenever and wherever it was installed."""
    found = hashlib.sha256()
    for address, static_file in sorted(_catalogue().files.items()):
        answer = static_file.get_response("GET", {})
        with contextlib.closing(answer.file):
            content = Path(answer.file.name).read_bytes()
        found.update(f"{address}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:_DIGITS]


class Storage(StaticFilesStorage):
    """The addresses that templates get."""

    def url(self, name: str | None) -> str:
        plain: str = super().url(name)
        return f"{settings.STATIC_URL}{digest()}/{plain.removeprefix(settings.STATIC_URL)}"


def _found(path: str) -> tuple[StaticFile | None, bool]:
    """The file of an address, and whether it will always be this one."""
    files = _catalogue().files
    if path in files:
        return files[path], False
    first, _, name = path.removeprefix(settings.STATIC_URL).partition("/")
    # The address may be of another release, while processes of both serve: then it is not kept.
    is_digest = len(first) == _DIGITS and all(character in "0123456789abcdef" for character in first)
    return (files.get(settings.STATIC_URL + name), first == digest()) if is_digest else (None, False)


def _response(request: HttpRequest) -> HttpResponse | None:
    static_file, is_for_ever = _found(request.path_info)
    if static_file is None:
        return None
    found = static_file.get_response(request.method, request.META)
    if found.status == HTTPStatus.PARTIAL_CONTENT and int(dict(found.headers)["Content-Length"]) > _LONGEST_RANGE:
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
    if is_for_ever and found.status != HTTPStatus.METHOD_NOT_ALLOWED:
        response["Cache-Control"] = _FOR_EVER
    return response


@sync_and_async_middleware
def static_files(get_response: Any) -> Any:
    """Serves the files under STATIC_URL."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            if request.path_info.startswith(settings.STATIC_URL):
                answer = await asyncio.to_thread(_response, request)
                if answer is not None:
                    return answer
            response: HttpResponseBase = await get_response(request)
            return response

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(settings.STATIC_URL):
            answer = _response(request)
            if answer is not None:
                return answer
        response: HttpResponseBase = get_response(request)
        return response

    return handle
