"""Middleware that sets the signed-in account as the actor of audit records written during a request."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from sessions_app.accounts.people import actor, address
from sessions_app.core.tenancy import audit


@sync_and_async_middleware
def known_actor(get_response: Any) -> Any:
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            with audit.acting(lambda: (actor(request), address(request))):
                response: HttpResponseBase = await get_response(request)
            return response

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        with audit.acting(lambda: (actor(request), address(request))):
            response: HttpResponseBase = get_response(request)
        return response

    return handle
