"""``manage.py check_agents FILE``: says what became of an agents file, or all that is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agents_app import loader, outline, providers
from agents_app.errors import AgentsFileError
from agents_app.providers import credentials


class Command(BaseCommand):
    help = "Checks an agents file: what became of each agent, with warnings; or one line per fault and exit status 1."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        try:
            specs = loader.load(options["file"])
        except AgentsFileError as error:
            for fault in error.faults:
                self.stderr.write(str(fault))
            sys.exit(1)
        keys = [name for name in providers.NAMES if credentials.default(name) is not None]
        for spec in specs:
            self.stdout.write(f"{spec.name} {spec.version}: OK")
            for what, how in outline.lines(spec):
                self.stdout.write(f"  {what:<8} {how}")
            for warning in outline.warnings(spec, keys):
                self.stdout.write(f"  warning: {warning}")
