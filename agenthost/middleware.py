"""Django middleware: request ids, and a check of X-Forwarded-Proto."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from agenthost.guard import is_request_id, new_request_id
from sessions_app.core.base import log_context


def _identify(request: HttpRequest) -> str:
    if isinstance(request, ASGIRequest):
        id_ = request.scope.get("agenthost", {}).get("request_id", "")
    else:
        # Without the guard: Django's test client, or a WSGI server.
        sent = request.headers.get("X-Request-Id", "")
        id_ = sent if is_request_id(sent) else ""
    request.META["agenthost.request_id"] = id_ = id_ or new_request_id()
    return str(id_)


def _complete(response: HttpResponseBase, id_: str) -> HttpResponseBase:
    response.headers.setdefault("X-Request-Id", id_)
    # CommonMiddleware does this for pages. Without a length, the server would send the response in chunks.
    if isinstance(response, HttpResponse) and not response.streaming:
        response.headers.setdefault("Content-Length", str(len(response.content)))
    return response


@sync_and_async_middleware
def request_id(get_response: Any) -> Any:
    """Copies the guard's request id to ``request.META["agenthost.request_id"]`` and to the log lines."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            id_ = _identify(request)
            with log_context.about(request=id_):
                response: HttpResponseBase = await get_response(request)
            return _complete(response, id_)

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        id_ = _identify(request)
        with log_context.about(request=id_):
            response: HttpResponseBase = get_response(request)
        return _complete(response, id_)

    return handle


def _untrusted_proxy_response(request: HttpRequest) -> HttpResponse | None:
    """The response to a request that an untrusted proxy forwarded as HTTPS, else None.

    Django would redirect it to HTTPS, the proxy would forward it in the same way, and the browser would loop.
    """
    if not settings.SECURE_SSL_REDIRECT or request.is_secure() or request.headers.get("X-Forwarded-Proto", "") != "https":
        return None
    text = (
        f"This request came from {request.META.get('REMOTE_ADDR') or 'an unknown address'} with X-Forwarded-Proto: https, but "
        "that address is not in AGENTHOST_PROXIES. Add the address of your proxy to AGENTHOST_PROXIES.\n"
    )
    return HttpResponse(text, status=421, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})


@sync_and_async_middleware
def forwarded_scheme(get_response: Any) -> Any:
    """Responds with the missing setting when X-Forwarded-Proto comes from an untrusted proxy."""
    if iscoroutinefunction(get_response):

        async def handle_async(request: HttpRequest) -> HttpResponseBase:
            response: HttpResponseBase = _untrusted_proxy_response(request) or await get_response(request)
            return response

        return handle_async

    def handle(request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = _untrusted_proxy_response(request) or get_response(request)
        return response

    return handle
