"""HTTP client for AAP version 3: one method per endpoint.

Joining a stream and cancelling are this project's additions to the protocol. Other servers respond to them with 404,
which the callers expect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from agenthost.client import agents, errors, session_use
from agenthost.client.agents import Agent
from agenthost.client.errors import ClientError, ConnectionFailed, ConnectionLost, ProtocolError, Refused, UsageError
from agenthost.client.session_use import SessionUse

DEFAULT_URL = "http://127.0.0.1:8000/aap/v3"
USUAL_PATH = "/aap/v3"
MOST_BYTES = 256 * 1024 * 1024
"""Limit of a response that is not a stream. A long history with images may be large."""

MOST_BYTES_OF_SHORT_HISTORY = 256 * 1024

_CONNECT = 15.0
_ANSWER = 120.0
_ANSWER_ABOUT_USE = 5.0
_KEY = re.compile(r"[\x21-\x7e]+")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def base_url(typed: str) -> str:
    """The protocol's base URL for the address that a user typed; raises UsageError if it is invalid."""
    text = typed.strip()
    if "://" not in text:
        host = text.partition("/")[0]
        text = f"{'http' if _host(f'http://{host}') in _LOOPBACK else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(f"{typed!r} is not the URL of a server; an example is {DEFAULT_URL}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("The URL must not contain a user, password, query or fragment; the key is set separately")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or USUAL_PATH}"


def is_unencrypted(url: str) -> bool:
    """Whether a key sent to this URL crosses a network unencrypted."""
    return url.startswith("http:") and _host(url) not in _LOOPBACK


def check_key(typed: str) -> str:
    key = typed.strip()
    if not _KEY.fullmatch(key):
        # Without the key itself, which may be nearly correct.
        raise UsageError("This is not a valid key: keys have visible ASCII characters only, without spaces")
    return key


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class Server:
    """A server and a key. ``on_wait`` is called before waiting for as long as the server asks (429, 503)."""

    def __init__(self, url: str, key: str, *, on_wait: Callable[[float, Refused], None], retry_seconds: float) -> None:
        self.url = url
        self._key = key
        self._on_wait = on_wait
        self.retry_seconds = retry_seconds
        """Total time to retry after a temporary refusal or a lost connection."""
        self._http: aiohttp.ClientSession | None = None
        self._reports_use = url.endswith(USUAL_PATH)
        """Whether to ask for the use of sessions, an addition of this project; False as soon as the server knows none."""

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    # --- endpoints ---

    async def agents(self) -> list[Agent]:
        return agents.parse_meta(await self._json("GET", "/meta"))

    async def create(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> str:
        answer = await self._json("POST", "/sessions", body, headers=headers)
        session = answer.get("sessionId") if isinstance(answer, dict) else None
        if not isinstance(session, str) or not session:
            raise ProtocolError("The server created a session but did not return its id.")
        return session

    async def session(self, session: str) -> dict[str, Any]:
        return _object(await self._json("GET", _session_path(session)))

    async def sessions(self, after: str = "") -> tuple[list[dict[str, Any]], str]:
        """A page of sessions, the newest first, and the position of the next page; empty if this is the last one."""
        answer = _object(await self._json("GET", "/sessions", params={"after": after} if after else None))
        found, more = answer.get("sessions"), answer.get("next")
        listed = [each for each in (found if isinstance(found, list) else []) if isinstance(each, dict)]
        return listed, more if isinstance(more, str) else ""

    async def delete(self, session: str) -> None:
        async with self._request("DELETE", _session_path(session), timeout=_ANSWER):
            pass

    async def history(self, session: str, kind: str) -> list[dict[str, Any]]:
        return _messages(await self._json("GET", _session_path(session, "/history"), params={"type": kind}), kind)

    async def short_history(self, session: str, kind: str) -> list[dict[str, Any]]:
        """The history, if it is short; else an empty list. For summaries in a list of sessions."""
        path = _session_path(session, "/history")
        async with (
            self._request("GET", path, params={"type": kind}, timeout=_ANSWER) as response,
            contextlib.aclosing(chunks(response)) as arriving,
        ):
            body = b""
            async for piece in arriving:
                body += piece
                if len(body) > MOST_BYTES_OF_SHORT_HISTORY:
                    return []
        return _messages(_parsed(body), kind)

    async def cancel(self, session: str, reason: str = "") -> dict[str, Any]:
        return _object(await self._json("POST", _session_path(session, "/cancel"), {"reason": reason} if reason else {}))

    async def use(self, session: str) -> SessionUse | None:
        """Dates and use of a session; None if the server does not report them now."""
        if not self._reports_use:
            return None
        try:
            async with self._open("GET", "/api" + _session_path(session), None, {}, {}, _ANSWER_ABOUT_USE) as response:
                if response.status == 200 and response.content_type == "application/json":
                    return session_use.read(_object(await read_json(response)))
                self._reports_use = response.status in (429, 503)
        except ClientError:
            # It is only shown beside the answer.
            return None
        return None

    @contextlib.asynccontextmanager
    async def turn(
        self, session: str, body: Mapping[str, Any], idempotency_key: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a turn. Repeated with the same key, it joins the first request, if the server supports that."""
        sent = {**headers, "Idempotency-Key": idempotency_key}
        async with self._request("POST", _session_path(session, "/turns"), body, headers=sent) as response:
            yield response

    @contextlib.asynccontextmanager
    async def events(
        self, session: str, mode: str, after: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The stream of the running turn, from its start or after a position. Status 204: no events."""
        sent = {**(headers or {}), **({"Last-Event-ID": after} if after else {})}
        path = _session_path(session, "/events/stream")
        async with self._request("GET", path, headers=sent, params={"stream": mode}) as response:
            yield response

    # --- requests ---

    async def _json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Any:
        async with self._request(method, path, body, headers=headers, params=params, timeout=_ANSWER) as response:
            return await read_json(response)

    @contextlib.asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response below 400. Retries after 429 and 503 when the server asks to, within ``retry_seconds``."""
        left = self.retry_seconds
        while True:
            async with self._open(method, path, body, headers or {}, params or {}, timeout) as response:
                if response.status < 400:
                    self._check_response(response)
                    yield response
                    return
                text = await _bounded(response)
                refused = errors.refusal(response.status, response.reason or "", response.headers, text)
                if refused.status == 404 and path == "/meta":
                    raise ProtocolError(f"No AAP endpoint at {self.url} (404). The URL usually ends in {USUAL_PATH}.")
            if refused.status not in (429, 503) or refused.retry_after is None or refused.retry_after > left:
                raise refused
            # At least half a second, even if the server says 0.
            pause = max(refused.retry_after, 0.5)
            left -= pause
            self._on_wait(pause, refused)
            await asyncio.sleep(pause)

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        params: Mapping[str, str],
        timeout: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._http is None:
            # No kept connections: minutes pass between messages, and the server would have closed them.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
            )
        with _translated_errors(self.url):
            response = await self._http.request(
                method,
                # The management API is beside the protocol's.
                (self.url.removesuffix(USUAL_PATH) if path.startswith("/api/") else self.url) + path,
                params=params,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json", **headers},
                timeout=aiohttp.ClientTimeout(total=timeout, connect=None, sock_connect=_CONNECT),
                # A redirect would send the key to another address.
                allow_redirects=False,
                proxy=_proxy(self.url),
                read_bufsize=2**18,
            )
        try:
            yield response
        finally:
            response.close()

    def _check_response(self, response: aiohttp.ClientResponse) -> None:
        if response.status >= 300:
            target = response.headers.get("Location", "another URL")
            raise ProtocolError(f"{self.url} redirects to {target}; use that URL.")
        type_ = response.content_type
        if response.status != 204 and type_ not in ("application/json", "text/event-stream"):
            raise ProtocolError(f"{self.url} does not respond like an AAP server (content type {type_}). Check the URL.")


@contextlib.contextmanager
def _translated_errors(url: str) -> Iterator[None]:
    """Raise ConnectionLost, with the reason, for every kind of connection error."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise ConnectionFailed(f"No connection to {url}: {_reason(error)}. Is the server running there?") from None
    except aiohttp.InvalidURL:
        raise UsageError(f"{url!r} is not the URL of a server") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionLost(f"No connection to {url}: {_reason(error)}.") from None


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return "its certificate is not trusted by this machine"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "TLS error (is it http instead of https?)"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host name"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError) or (
        isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
    ):
        return "connection refused"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "unreachable"
    return "connection lost"


async def chunks(
    response: aiohttp.ClientResponse, read_timeout: Callable[[], float | None] = lambda: None
) -> AsyncGenerator[bytes]:
    """The body in chunks as they arrive. ``read_timeout`` returns the seconds without data after which the connection is lost."""
    while True:
        with _translated_errors(str(response.url.origin())):
            piece = await asyncio.wait_for(response.content.readany(), read_timeout())
        if not piece:
            return
        yield piece


async def read_json(response: aiohttp.ClientResponse) -> Any:
    return _parsed(await _bounded(response))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("The server's response is not valid JSON.") from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = [], 0
    async with contextlib.aclosing(chunks(response)) as arriving:
        async for piece in arriving:
            size += len(piece)
            if size > MOST_BYTES:
                raise ProtocolError("The server's response is too large.")
            pieces.append(piece)
    return b"".join(pieces)


def _session_path(session: str, suffix: str = "") -> str:
    return f"/sessions/{quote(session, safe='')}{suffix}"


def _messages(answer: Any, kind: str) -> list[dict[str, Any]]:
    found = _object(answer).get("history")
    messages = found.get(kind) if isinstance(found, dict) else None
    return [each for each in (messages if isinstance(messages, list) else []) if isinstance(each, dict)]


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError("The server's response is not valid AAP.")
    return value


def _proxy(url: str) -> str | None:
    """The machine's configured HTTP proxy for this URL, if there is one."""
    parts = urlsplit(url)
    if parts.hostname in _LOOPBACK or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)
