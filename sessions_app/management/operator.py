"""The base class of the operator's commands: audit actor, lookup of tenants and keys, one-line errors."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents_app import installation
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.tenancy import audit
from sessions_app.models import ApiKey, Tenant


class OperatorCommand(BaseCommand):
    """A command that acts for the operator and writes audit records.

    Results for scripts go to stdout, explanations for people to stderr.
    """

    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        if self.examples:
            lines = "\n".join(f"  {installation.manage(line)}" for line in self.examples.strip().splitlines())
            parser.epilog = f"examples:\n{lines}"
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except InvalidInput as error:
            raise CommandError("; ".join(fault.detail for fault in error.faults)) from error

    def explain(self, text: str) -> None:
        self.stderr.write(text, self.style.NOTICE if self.stderr.isatty() else None)

    def tenant(self, slug: str) -> Tenant:
        found = Tenant.objects.filter(slug=slug).first()
        if found is None:
            raise CommandError(f"There is no tenant {slug!r}. Create it with: {installation.manage(f'create_tenant {slug}')}")
        return found

    def key(self, reference: str) -> ApiKey:
        """A key by its prefix (at least its 11 stored characters, or the whole key) or by its number."""
        keys = ApiKey.objects.select_related("tenant")
        if reference.isascii() and reference.isdigit():
            keys = keys.filter(pk=min(int(reference), 2**63 - 1))
        else:
            keys = keys.filter(prefix=reference[:11])
        found = list(keys[:2])
        if not found:
            listing = installation.manage("list_keys --all")
            raise CommandError(f"There is no key {reference[:11]!r}. List the keys with: {listing}")
        if len(found) > 1:
            raise CommandError(f"Several keys start with {reference[:11]!r}; use the number of one from list_keys.")
        return found[0]

    @property
    def actor(self) -> str:
        return audit.shell_user()

    @property
    def address(self) -> str:
        return socket.gethostname()


def names(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
