"""verify_certificate: checks the signature of a certificate of this installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.core.tenancy import certificates


class Command(BaseCommand):
    help = "Checks that this installation signed a certificate, as delete_tenant prints it, and that nobody changed it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the certificate")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            text = Path(options["file"]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read {options['file']}: {error}") from error
        fault = certificates.fault(text)
        if fault is not None:
            raise CommandError(f"This is no valid certificate: {fault}.")
        self.stdout.write("The certificate is valid.")
