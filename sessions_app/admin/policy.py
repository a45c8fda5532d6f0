"""Middleware that gives every page under /admin/ a strict content security policy, Django's own pages included."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

_PATH = "/admin/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere, and no script or style inside a page counts: what users and models write stays text."""


@sync_and_async_middleware
def content_policy(get_response: Any) -> Any:
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            return _with_policy(request, await get_response(request))

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        return _with_policy(request, get_response(request))

    return handle


def _with_policy(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if request.path_info.startswith(_PATH):
        response["Content-Security-Policy"] = POLICY
    return response
