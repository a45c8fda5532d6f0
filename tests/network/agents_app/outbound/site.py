"""A web site of scripted bytes on real sockets, which knows who came and what they asked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Writer = asyncio.StreamWriter
Handler = Callable[[asyncio.StreamReader, Writer], Awaitable[None]]


def answer(body: bytes | str = b"", *headers: str, status: str = "200 OK", content_type: str | None = "text/plain") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    kind = [f"Content-Type: {content_type}"] if content_type else []
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Connection: close", *kind, *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer("", f"Location: {location}", status=status)


@dataclass
class Site:
    """``pages``: path to the bytes of an answer, or to what talks by itself. ``heads``: what was asked, each as one text."""

    port: int = 0
    pages: dict[str, bytes | Handler] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            page = self.pages.get(head.split(" ")[1].partition("?")[0], answer("canary"))
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(reader, writer)
        writer.close()


@asynccontextmanager
async def running(*hosts: str, encryption: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    """A site on a free port of the first host, and the same port of the others."""
    site, servers = Site(), list[asyncio.Server]()
    try:
        for host in hosts or ("127.0.0.1",):
            servers.append(await asyncio.start_server(site.serve, host, site.port, ssl=encryption))
            site.port = servers[0].sockets[0].getsockname()[1]
        yield site
    finally:
        for server in servers:
            server.close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
