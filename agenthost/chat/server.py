"""A server of AAP version 3, as its client sees it: one method for each endpoint.

Holds no rule of a conversation. Joining a stream and cancelling are this project's additions to the protocol; other
servers answer them with 404, which the callers expect.
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

from agenthost.chat import agents, errors
from agenthost.chat.agents import Agent
from agenthost.chat.errors import NotAAP, NotConnected, NotReached, Refused, WrongUse

DEFAULT_URL = "http://127.0.0.1:8000/aap/v3"
USUAL_PATH = "/aap/v3"
MOST_BYTES = 256 * 1024 * 1024
"""Of an answer that is not a stream: a long history with pictures may be large, an endless one must end."""

MOST_OF_A_GLIMPSE = 256 * 1024

_CONNECT = 15.0
_ANSWER = 120.0
_KEY = re.compile(r"[\x21-\x7e]+")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def base_url(written: str) -> str:
    """The address of the protocol from what a person types; WrongUse says what is wrong with it."""
    text = written.strip()
    if "://" not in text:
        host = text.partition("/")[0]
        text = f"{'http' if _host(f'http://{host}') in _LOOPBACK else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise WrongUse(f"{written!r} is not the address of a server, such as {DEFAULT_URL}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise WrongUse("The address takes no user, password, query or fragment; the key is given apart from it")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or USUAL_PATH}"


def is_exposed(url: str) -> bool:
    """Whether a key sent there crosses a network in the open."""
    return url.startswith("http:") and _host(url) not in _LOOPBACK


def checked_key(written: str) -> str:
    key = written.strip()
    if not _KEY.fullmatch(key):
        # Without the key itself: it may be nearly right.
        raise WrongUse("This cannot be a key: a key has visible letters only, without blanks")
    return key


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class Server:
    """One key at one server. ``waited`` is told what the server asks to wait for, before it is waited."""

    def __init__(self, url: str, key: str, *, waited: Callable[[float, Refused], None], patience: float) -> None:
        self.url = url
        self._key = key
        self._waited = waited
        self.patience = patience
        """Seconds that a refusal for a time, or a lost connection, is waited out."""
        self._http: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    # --- endpoints ---

    async def agents(self) -> list[Agent]:
        return agents.of_meta(await self._json("GET", "/meta"))

    async def create(self, body: Mapping[str, Any]) -> str:
        answer = await self._json("POST", "/sessions", body)
        session = answer.get("sessionId") if isinstance(answer, dict) else None
        if not isinstance(session, str) or not session:
            raise NotAAP("The server made a session and did not say which.")
        return session

    async def session(self, session: str) -> dict[str, Any]:
        return _object(await self._json("GET", _below(session)))

    async def sessions(self) -> tuple[list[dict[str, Any]], bool]:
        """The newest ones, and whether there are more."""
        answer = _object(await self._json("GET", "/sessions"))
        found = answer.get("sessions")
        listed = [each for each in (found if isinstance(found, list) else []) if isinstance(each, dict)]
        return listed, isinstance(answer.get("next"), str)

    async def history(self, session: str, kind: str) -> list[dict[str, Any]]:
        return _messages(await self._json("GET", _below(session, "/history"), params={"type": kind}), kind)

    async def glimpse(self, session: str, kind: str) -> list[dict[str, Any]]:
        """A history, if it is short enough to be read for the sake of a line; else nothing."""
        path = _below(session, "/history")
        async with (
            self._patiently("GET", path, params={"type": kind}, timeout=_ANSWER) as response,
            contextlib.aclosing(chunks(response)) as arriving,
        ):
            body = b""
            async for piece in arriving:
                body += piece
                if len(body) > MOST_OF_A_GLIMPSE:
                    return []
        return _messages(_parsed(body), kind)

    async def cancel(self, session: str) -> dict[str, Any]:
        return _object(await self._json("POST", _below(session, "/cancel"), {}))

    @contextlib.asynccontextmanager
    async def turn(self, session: str, body: Mapping[str, Any], once: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a turn. Sent again with the same ``once`` it joins the first, where the server knows how."""
        headers = {"Idempotency-Key": once}
        async with self._patiently("POST", _below(session, "/turns"), body, headers=headers) as response:
            yield response

    @contextlib.asynccontextmanager
    async def events(self, session: str, mode: str, after: str = "") -> AsyncIterator[aiohttp.ClientResponse]:
        """The running turn's stream, from its start or after a position. Status 204: nothing to show."""
        headers = {"Last-Event-ID": after} if after else {}
        path = _below(session, "/events/stream")
        async with self._patiently("GET", path, headers=headers, params={"stream": mode}) as response:
            yield response

    # --- how ---

    async def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, params: Mapping[str, str] | None = None
    ) -> Any:
        async with self._patiently(method, path, body, params=params, timeout=_ANSWER) as response:
            return await read_json(response)

    @contextlib.asynccontextmanager
    async def _patiently(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer below 400. What the server says to try again later is tried again then, if that is soon enough."""
        left = self.patience
        while True:
            async with self._opened(method, path, body, headers or {}, params or {}, timeout) as response:
                if response.status < 400:
                    self._require_answer(response)
                    yield response
                    return
                text = await _bounded(response)
                refused = errors.refusal(response.status, response.reason or "", response.headers, text)
                if refused.status == 404 and path == "/meta":
                    raise NotAAP(f"There is no AAP at {self.url} (404). Its address usually ends in {USUAL_PATH}.")
            if refused.status not in (429, 503) or refused.retry_after is None or refused.retry_after > left:
                raise refused
            # A server that says "at once" is given a moment all the same.
            pause = max(refused.retry_after, 0.5)
            left -= pause
            self._waited(pause, refused)
            await asyncio.sleep(pause)

    @contextlib.asynccontextmanager
    async def _opened(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        params: Mapping[str, str],
        timeout: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._http is None:
            # Minutes pass between two messages: a connection that was kept would be closed when it is wanted.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
            )
        with _told(self.url):
            response = await self._http.request(
                method,
                self.url + path,
                params=params,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json", **headers},
                timeout=aiohttp.ClientTimeout(total=timeout, connect=None, sock_connect=_CONNECT),
                # A redirect would carry the key to wherever it points.
                allow_redirects=False,
                proxy=_proxy(self.url),
                read_bufsize=2**18,
            )
        try:
            yield response
        finally:
            response.close()

    def _require_answer(self, response: aiohttp.ClientResponse) -> None:
        if response.status >= 300:
            target = response.headers.get("Location", "elsewhere")
            raise NotAAP(f"{self.url} points to {target}; give the final address with --url.")
        kind = response.content_type
        if response.status != 204 and kind not in ("application/json", "text/event-stream"):
            raise NotAAP(f"{self.url} answers, but not as a server of this protocol ({kind}). Is the address right?")


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Every way of losing a connection is NotReached, with its reason in words."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise NotConnected(f"No connection to {url}: {_reason(error)}.") from None
    except aiohttp.InvalidURL:
        raise WrongUse(f"{url!r} is not the address of a server") from None
    except (aiohttp.ClientError, OSError) as error:
        raise NotReached(f"No connection to {url}: {_reason(error)}.") from None


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return "its certificate is not one that this machine trusts"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "it does not speak TLS as it should (is it http instead of https?)"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "there is no such host"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ConnectionRefusedError) or (
        isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
    ):
        return "nobody listens there"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "it cannot be reached"
    return "it was cut"


async def chunks(response: aiohttp.ClientResponse, silence: Callable[[], float | None] = lambda: None) -> AsyncGenerator[bytes]:
    """What comes, as it comes, up to a proper end. ``silence``: after how many seconds without a word it counts as cut."""
    while True:
        with _told(str(response.url.origin())):
            piece = await asyncio.wait_for(response.content.readany(), silence())
        if not piece:
            return
        yield piece


async def read_json(response: aiohttp.ClientResponse) -> Any:
    return _parsed(await _bounded(response))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise NotAAP("The server's answer is not the JSON that it says it is.") from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = [], 0
    async with contextlib.aclosing(chunks(response)) as arriving:
        async for piece in arriving:
            size += len(piece)
            if size > MOST_BYTES:
                raise NotAAP("The server's answer is larger than anything it should have to say.")
            pieces.append(piece)
    return b"".join(pieces)


def _below(session: str, rest: str = "") -> str:
    return f"/sessions/{quote(session, safe='')}{rest}"


def _messages(answer: Any, kind: str) -> list[dict[str, Any]]:
    found = _object(answer).get("history")
    messages = found.get(kind) if isinstance(found, dict) else None
    return [each for each in (messages if isinstance(messages, list) else []) if isinstance(each, dict)]


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotAAP("The server's answer has not the form that the protocol gives it.")
    return value


def _proxy(url: str) -> str | None:
    """The proxy that this machine is set up with, if the address is to be reached through one."""
    parts = urlsplit(url)
    if parts.hostname in _LOOPBACK or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)
