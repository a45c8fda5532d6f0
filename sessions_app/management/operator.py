"""What the operator's commands share: who acts, finding rows by what people type, errors in one line."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.tenancy import audit
from sessions_app.models import ApiKey, Tenant


class OperatorCommand(BaseCommand):
    """A command that acts for the operator and leaves audit rows.

    What a script may want stands on stdout, what a person may want on stderr.
    """

    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        if self.examples:
            lines = "\n".join(f"  python manage.py {line}" for line in self.examples.strip().splitlines())
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
            raise CommandError(f"There is no tenant {slug!r}. Make it with: python manage.py create_tenant {slug}")
        return found

    def key(self, reference: str) -> ApiKey:
        """A key by the start of it (at least its 11 stored letters, or all of it) or by its number."""
        keys = ApiKey.objects.select_related("tenant")
        if reference.isascii() and reference.isdigit():
            keys = keys.filter(pk=min(int(reference), 2**63 - 1))
        else:
            keys = keys.filter(prefix=reference[:11])
        found = list(keys[:2])
        if not found:
            raise CommandError(f"There is no key {reference[:11]!r}. python manage.py list_keys shows them all.")
        if len(found) > 1:
            raise CommandError(f"Several keys start with {reference[:11]!r}; name one by its number from list_keys.")
        return found[0]

    @property
    def actor(self) -> str:
        return audit.shell_user()

    @property
    def address(self) -> str:
        return socket.gethostname()


def names(text: str) -> list[str]:
    """A list as people type it: commas between, blanks around."""
    return [name.strip() for name in text.split(",") if name.strip()]
