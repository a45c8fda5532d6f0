"""chat: the terminal chat, connected to this installation's server by default."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from datetime import timedelta
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from agenthost.chat import command
from agenthost.chat.errors import KEY_REFUSED
from agents_app import installation
from sessions_app.core.tenancy import keys
from sessions_app.core.tenancy.keys import Issued
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import Tenant

KEY_NAME = "manage.py chat"
KEY_LIFETIME = timedelta(hours=12)
_SCOPES = ("meta:read", "sessions:read", "sessions:write")


class Command(OperatorCommand):
    help = (
        "Chats with an agent of this installation in the terminal or, with --url, of any server that speaks AAP version 3. "
        "Without a key, it issues a temporary one for this chat."
    )
    examples = """
chat
chat demo
chat demo --tenant acme --resume sess_…
chat demo --once 'What is 17 * 23?' --allow calculator
"""
    requires_system_checks = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.epilog = f"{parser.epilog}\n\n{command.EXIT_CODES}"
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        command.add_arguments(parser)
        parser.add_argument("--tenant", metavar="TENANT", help="the tenant to issue the temporary key for, if there are several")

    def handle(self, *_args: Any, **options: Any) -> NoReturn:
        arguments = argparse.Namespace(**options)
        if arguments.no_color:
            os.environ["NO_COLOR"] = "1"
        issued = None if self._needs_no_key(arguments) else self._issue(arguments.tenant)
        # So that a signal or a closed terminal also ends the temporary key.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
        try:
            code = command.run(
                arguments,
                program=installation.manage("chat"),
                default_url=os.environ.get(command.URL_VARIABLE) or local_url(),
                key="" if issued is None else issued.raw,
            )
        finally:
            if issued is not None:
                self._end(issued)
        if code == KEY_REFUSED and issued is not None:
            self.explain("The server uses another database than this command. Check DATABASE_URL and AGENTHOST_VAR_DIR.")
        sys.exit(code)

    def _needs_no_key(self, arguments: argparse.Namespace) -> bool:
        """A key is configured, or the server is another one, to which no key of this installation is sent."""
        url = arguments.url or os.environ.get(command.URL_VARIABLE)
        return bool(arguments.key or arguments.key_file or os.environ.get(command.KEY_VARIABLE) or url)

    def _issue(self, slug: str | None) -> Issued | None:
        try:
            tenant = self._tenant(slug)
            issued = keys.issue(
                tenant,
                name=KEY_NAME,
                scopes=_SCOPES,
                expires_at=timezone.now() + KEY_LIFETIME,
                allowed_agents=None,
                actor=self.actor,
                address=self.address,
            )
        except DatabaseError:
            self.explain("No key is set, and none can be issued: the database does not answer or has not been migrated.")
            return None
        self.explain(f"Using a temporary key of the tenant {tenant.slug}.")
        return issued

    def _tenant(self, slug: str | None) -> Tenant:
        if slug is not None:
            return self.tenant(slug)
        tenants = list(Tenant.objects.filter(suspended_at=None).order_by("slug")[:11])
        if len(tenants) == 1:
            return tenants[0]
        if not tenants:
            raise CommandError(f"There is no active tenant. Create one: {installation.manage('create_tenant NAME')}")
        names = ", ".join(tenant.slug for tenant in tenants[:10]) + (", …" if len(tenants) > 10 else "")
        raise CommandError(f"There are several tenants. Choose one with --tenant ({names}), or set {command.KEY_VARIABLE}.")

    def _end(self, issued: Issued) -> None:
        close_old_connections()
        try:
            # Expired, not revoked, because revoking would stop turns that still run or wait for an answer.
            keys.expire(issued.key, actor=self.actor, address=self.address)
        except DatabaseError:
            until = f"{timezone.now() + KEY_LIFETIME:%Y-%m-%d %H:%M} UTC"
            self.explain(f"The key {issued.key.prefix}… could not be ended; it expires at {until} at the latest.")


def local_url() -> str:
    """The URL of this installation's server on this machine."""
    host: str = settings.AGENTHOST_HOST
    if host in ("", "0.0.0.0"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    try:
        socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        pass
    else:
        host = f"[{host}]"
    return f"http://{host}:{settings.AGENTHOST_PORT}/aap/v3"
