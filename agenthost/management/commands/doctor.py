"""doctor: checks everything that a deployment needs."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agenthost.doctor import findings
from agenthost.doctor.all_checks import run_all


class Command(BaseCommand):
    help = (
        "Checks settings, database, schema, keys, Redis, agents, provider keys, MCP servers, clock, disk and processes:"
        " one line each, with the fix. Exits with 1 if a check fails. Changes nothing."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--connect",
            action="store_true",
            help="also send a request to each model (a few tokens) and connect to each MCP server",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object, for programs")

    def handle(self, *_args: Any, **options: Any) -> None:
        found = []
        for finding in run_all(connect=options["connect"]):
            found.append(finding)
            if not options["json"]:
                # At once, because the next check may wait for a server that does not answer.
                self.stdout.write(findings.line(finding))
                self.stdout.flush()
        if options["json"]:
            self.stdout.write(findings.document(found))
        if code := findings.exit_code(found):
            sys.exit(code)
