"""ahp_tail: prints a session live in a terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import os
import secrets
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.http11 import Response

from agents_app import exact_json
from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.client.transcript import Transcript, printable
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.for_clients import ALL, V0_1, V0_9, V1_0

_PAUSE = 1.0
_LONGEST_DETAIL = 500
_VERSIONS = {"1.0": V1_0, "0.9": V0_9, "0.1": V0_1}


class Command(BaseCommand):
    help = (
        "Prints a session of any AHP host as it happens: messages, thinking, tool calls and results. The key is read"
        " from AGENTHOST_KEY, or asked for."
    )
    requires_system_checks = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """``--version`` is the protocol's, not Django's."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("url", help="the host's URL, such as ws://127.0.0.1:8000/ahp")
        parser.add_argument("session", help="the URI of the session, such as ahp-session:/sess_…, or (AHP 0.9, 1.0) of a chat")
        parser.add_argument("--once", action="store_true", help="print the session so far and end with the running turn")
        parser.add_argument("--version", choices=list(_VERSIONS), help="of AHP; by default the newest that the host serves")

    def handle(self, *_args: Any, **options: Any) -> None:
        key = os.environ.get("AGENTHOST_KEY") or getpass.getpass("Key: ")
        versions = ALL if options["version"] is None else (_VERSIONS[options["version"]],)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.tail(options["url"], key, options["session"], once=options["once"], versions=versions))

    async def tail(self, url: str, key: str, uri: str, *, once: bool, versions: Sequence[ClientVersion] = ALL) -> None:
        """Print the session until it is over; CommandError with the host's reason if that is refused."""
        transcript = Transcript(self._write)
        name = f"ahp_tail-{secrets.token_hex(4)}"
        client = Client(url, key, name, on_envelope=transcript.take, version=versions)
        try:
            await client.open()
            await self._begin(client)
            await self._follow(client, transcript, uri, once=once)
        except InvalidStatus as error:
            raise CommandError(f"the host refused the connection: {_refusal(error.response)}") from None
        except (OSError, WebSocketException) as error:
            raise CommandError(f"cannot connect to {url}: {error}") from None
        except RPCError as error:
            raise CommandError(f"{uri}: {error.message}") from None
        finally:
            await client.close()

    async def _begin(self, client: Client) -> None:
        try:
            await client.initialize()
        except RPCError as error:
            supported = error.data.get("supportedVersions") if isinstance(error.data, dict) else None
            served = f" It serves {', '.join(map(str, supported))}." if isinstance(supported, list) else ""
            raise CommandError(printable(f"the host refused the handshake: {error.message}{served}")) from None
        if client.version.has_channels:
            # Removed sessions are told to subscribers of the root.
            await client.subscribe(client.version.root)

    async def _follow(self, client: Client, transcript: Transcript, uri: str, *, once: bool) -> None:
        session = await client.subscribe(uri)
        # In AHP 0.9 and 1.0 the turns are in a chat's state.
        chat = session.get("defaultChat", uri)
        transcript.begin(session, await client.subscribe(chat) if chat != uri else None)
        while True:
            try:
                await client.until(lambda: _may_be_over(client, chat, once=once), None)
                if (once and _is_idle(client, chat)) or not await self._exists(client, uri):
                    break
            except Disconnected:
                await self._reconnect(client)
                if chat not in client.mirrors:
                    break
        if not (once and chat in client.mirrors):
            transcript.end("the session was deleted")

    async def _exists(self, client: Client, uri: str) -> bool:
        """Whether a session that was removed was another one: it may be named by another of its URIs."""
        client.heard.clear()
        try:
            await client.subscribe(uri)
        except RPCError:
            client.mirrors.clear()
            return False
        return True

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


def _is_idle(client: Client, chat: str) -> bool:
    return "activeTurn" not in client.state(chat)


def _may_be_over(client: Client, chat: str, *, once: bool) -> bool:
    # This program runs for days.
    client.seen.clear()
    is_removed = any(each["type"] in ("notify/sessionRemoved", "root/sessionRemoved") for each in client.heard)
    if not is_removed:
        client.heard.clear()
    return is_removed or (once and _is_idle(client, chat))


def _refusal(response: Response) -> str:
    """The status, with the detail of the host's problem document if there is one."""
    try:
        detail = str(exact_json.loads(bytes(response.body).decode())["detail"])
    except (exact_json.NotJSON, UnicodeDecodeError, KeyError, TypeError):
        return str(response.status_code)
    return f"{response.status_code}: {printable(detail[:_LONGEST_DETAIL])}"
