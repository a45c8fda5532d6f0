"""``manage.py check_agents FILE``: says whether an agents file can be used, and all that is wrong if not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agents_app import loader
from agents_app.errors import AgentsFileError


class Command(BaseCommand):
    help = "Checks an agents file: one line per agent, or one per fault and exit status 1."
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
        for spec in specs:
            tools = ", ".join(tool.name for tool in spec.tools) or "none"
            self.stdout.write(f"{spec.name} {spec.version}: OK (model {spec.model}, tools {tools})")
