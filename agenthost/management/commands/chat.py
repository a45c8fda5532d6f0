"""chat: the terminal chat, with this installation's own server."""

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
from sessions_app.core.tenancy import keys
from sessions_app.core.tenancy.keys import Issued
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import Tenant

KEY_NAME = "manage.py chat"
KEY_LIFETIME = timedelta(hours=12)
_SCOPES = ("meta:read", "sessions:read", "sessions:write")


class Command(OperatorCommand):
    help = (
        "Talks to an agent of this installation in the terminal, or with --url to one of any server that speaks AAP version 3. "
        "Without a key it makes one for this chat alone: whoever may run this command may issue keys."
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
        parser.epilog = f"{parser.epilog}\n\n{command.CODES}"
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        command.add_arguments(parser)
        parser.add_argument("--tenant", metavar="TENANT", help="whose key to make, where there are several tenants")

    def handle(self, *_args: Any, **options: Any) -> NoReturn:
        given = argparse.Namespace(**options)
        if given.no_color:
            os.environ["NO_COLOR"] = "1"
        issued = None if self._has_key(given) else self._issue(given.tenant)
        # Ended by a signal or by the end of its terminal, it still takes its key back.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
        try:
            code = command.run(
                given,
                program="python manage.py chat",
                default_url=os.environ.get(command.URL_VARIABLE) or local_url(),
                key="" if issued is None else issued.raw,
            )
        finally:
            if issued is not None:
                self._end(issued)
        if code == KEY_REFUSED and issued is not None:
            self.explain("That server works on another database than this command: see DATABASE_URL and AGENTHOST_VAR_DIR.")
        sys.exit(code)

    def _has_key(self, given: argparse.Namespace) -> bool:
        """Or is to be asked for one: a key of this installation is not sent to other servers."""
        elsewhere = given.url or os.environ.get(command.URL_VARIABLE)
        return bool(given.key or given.key_file or os.environ.get(command.KEY_VARIABLE) or elsewhere)

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
            self.explain("No key was given, and none can be made: the database does not answer, or has not been migrated.")
            return None
        self.explain(f"With a key of the tenant {tenant.slug}, for this chat alone.")
        return issued

    def _tenant(self, slug: str | None) -> Tenant:
        if slug is not None:
            return self.tenant(slug)
        found = list(Tenant.objects.filter(suspended_at=None).order_by("slug")[:11])
        if len(found) == 1:
            return found[0]
        if not found:
            raise CommandError("There is no tenant whose key could be made: python manage.py create_tenant NAME")
        listed = ", ".join(tenant.slug for tenant in found[:10]) + (", …" if len(found) > 10 else "")
        raise CommandError(f"Whose key? Give --tenant, one of {listed}; or a key of your own in {command.KEY_VARIABLE}.")

    def _end(self, issued: Issued) -> None:
        close_old_connections()
        try:
            # Not revoked: that would stop what was left running, or waiting for an answer.
            keys.expire(issued.key, actor=self.actor, address=self.address)
        except DatabaseError:
            until = f"{timezone.now() + KEY_LIFETIME:%Y-%m-%d %H:%M} UTC"
            self.explain(f"The key {issued.key.prefix}… could not be ended; it expires {until} at the latest.")


def local_url() -> str:
    """Where this installation's server is reached from this machine."""
    host: str = settings.AGENTHOST_HOST
    if host in ("", "0.0.0.0"):  # noqa: S104 - looked at, not listened on
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
