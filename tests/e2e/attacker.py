"""An attacker without a key, in a separate process: ``python -m tests.e2e.attacker KIND PORT``. Runs until it is killed.

It uses its connections as hard as a probe would, and comes back when one is closed.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable

BODY_BYTES = 8 * 1024 * 1024


def wrong_key() -> str:
    return f"ah_{secrets.token_urlsafe(32)}"


async def hold_back(port: int) -> None:
    """Send a request with a well-formed key and its body except for the last byte, then nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {wrong_key()}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode())
        for _ in range(BODY_BYTES // 65536 - 1):
            writer.write(b" " * 65536)
            await writer.drain()
        writer.write(b" " * 65535)
        await reader.read()
    finally:
        writer.close()
    await asyncio.sleep(0.5)


async def endless_headers(port: int) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        while True:
            writer.write(b"a: b\r\n" * 200)
            await writer.drain()
    finally:
        writer.close()


async def silence(port: int) -> None:
    """Open a connection and send nothing, or only a part of the headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(secrets.choice([b"", b"GET / HTTP/1.1\r\nHost:"]))
        await reader.read()
    finally:
        writer.close()


async def wrong_keys(port: int) -> None:
    await keep_asking(port, wrong_key)


async def malformed_keys(port: int) -> None:
    await keep_asking(port, secrets.token_hex)


async def preflights(port: int) -> None:
    await keep_asking(port, wrong_key, "OPTIONS")


async def early_frames(port: int) -> None:
    """Send a WebSocket handshake with a wrong key, followed at once by a frame of the largest size."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [
            "GET /ahp HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {wrong_key()}",
            "Connection: Upgrade",
            "Upgrade: websocket",
        ]
        lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]
        writer.write("\r\n".join(lines).encode())
        await writer.drain()
        # Frames sent together with the handshake would be refused anyway.
        await asyncio.sleep(0.02)
        writer.write(b"\x81\xff" + BODY_BYTES.to_bytes(8, "big") + bytes(4))
        for _ in range(BODY_BYTES // 65536 - 1):
            writer.write(b" " * 65536)
            await writer.drain()
        await reader.read()
    finally:
        writer.close()


async def keep_asking(port: int, key: Callable[[], str], method: str = "GET") -> None:
    """Send requests with wrong keys, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(f"{method} /aap/v3/meta HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key()}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((line for line in lines if line.startswith(b"content-length:")), b":0")
            await reader.readexactly(int(length.partition(b":")[2]))
    finally:
        writer.close()


KINDS: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
    "bodies": (hold_back, 40),
    "headers": (endless_headers, 1),
    "silence": (silence, 400),
    "keys": (wrong_keys, 50),
    "malformed": (malformed_keys, 50),
    "preflights": (preflights, 50),
    "frames": (early_frames, 40),
}


async def main(kind: str, port: int) -> None:
    attack, times = KINDS[kind]

    async def again_and_again() -> None:
        while True:
            try:
                await attack(port)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(again_and_again()) for _ in range(times)]
    print("attacking", flush=True)  # noqa: T201
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
