"""Middleware: the content policy of all pages of accounts, console and admin, also of those that libraries render."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from sessions_app.accounts.people import protect

_PAGES = ("/accounts/", "/admin/", "/console/")


def _protected(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if request.path_info.startswith(_PAGES) and "Content-Security-Policy" not in response:
        protect(response)
    return response


@sync_and_async_middleware
def protected_pages(get_response: Any) -> Any:
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            return _protected(request, await get_response(request))

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        return _protected(request, get_response(request))

    return handle
