"""ahp_tail: prints a session live in a terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import os
import secrets
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.http11 import Response

from agents_app import exact_json
from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.client.transcript import Transcript, printable
from sessions_app.ahp.transport.jsonrpc import RPCError

_PAUSE = 1.0
_LONGEST_DETAIL = 500


class Command(BaseCommand):
    help = (
        "Prints a session of any AHP host as it happens: messages, thinking, tool calls and results. The key is read"
        " from AGENTHOST_KEY, or asked for."
    )
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("url", help="the host's URL, such as ws://127.0.0.1:8000/ahp")
        parser.add_argument("session", help="the session's URI, such as echo:/sess_…")
        parser.add_argument("--once", action="store_true", help="print the session so far and end with the running turn")

    def handle(self, *_args: Any, **options: Any) -> None:
        key = os.environ.get("AGENTHOST_KEY") or getpass.getpass("Key: ")
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.tail(options["url"], key, options["session"], once=options["once"]))

    async def tail(self, url: str, key: str, session: str, *, once: bool) -> None:
        """Print the session until it is over; CommandError with the host's reason if that is refused."""
        try:
            await self._tail(url, key, session, once=once)
        except InvalidStatus as error:
            raise CommandError(f"the host refused the connection: {_refusal(error.response)}") from None
        except (OSError, WebSocketException) as error:
            raise CommandError(f"cannot connect to {url}: {error}") from None
        except RPCError as error:
            raise CommandError(f"{session}: {error.message}") from None

    async def _tail(self, url: str, key: str, session: str, *, once: bool) -> None:
        transcript = Transcript(self._write)
        client = Client(url, key, f"ahp_tail-{secrets.token_hex(4)}", on_envelope=transcript.take)
        await client.open()
        try:
            await client.initialize()
            transcript.begin(await client.subscribe(session))
            while True:
                try:
                    await client.until(lambda: _is_over(client, session, once=once), None)
                except Disconnected:
                    await self._reconnect(client)
                    if session in client.mirrors:
                        continue
                if not once:
                    transcript.end("the session was deleted")
                return
        finally:
            await client.close()

    async def _reconnect(self, client: Client) -> None:
        """Try until it succeeds: the host may be restarting."""
        while True:
            try:
                await client.reconnect()
            except (OSError, WebSocketException, Disconnected):
                await asyncio.sleep(_PAUSE)
            else:
                return

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _is_over(client: Client, session: str, *, once: bool) -> bool:
    gone = {"type": "notify/sessionRemoved", "session": session}
    return gone in client.heard or (once and "activeTurn" not in client.state(session))


def _refusal(response: Response) -> str:
    """The status, with the detail of the host's problem document if there is one."""
    try:
        detail = str(exact_json.loads(bytes(response.body).decode())["detail"])
    except (exact_json.NotJSON, UnicodeDecodeError, KeyError, TypeError):
        return str(response.status_code)
    return f"{response.status_code}: {printable(detail[:_LONGEST_DETAIL])}"
