"""``manage.py check_agents FILE``: shows the agents of a file, or all its faults."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agenthost import checks
from agents_app import agent_report, loader, providers
from agents_app.errors import AgentsFileError
from agents_app.mcp import doctor
from agents_app.providers import credentials
from agents_app.spec import AgentSpec


class Command(BaseCommand):
    help = "Checks an agents file: what became of each agent, with warnings; or one line per fault and exit status 1."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--connect", action="store_true", help="also ask each MCP server for its tools")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's signature
        try:
            specs = loader.load(options["file"])
        except AgentsFileError as error:
            for fault in error.faults:
                line = "" if fault.line is None else f"{fault.line}:"
                self.stderr.write(f"{error.path}:{line} {fault}")
            sys.exit(1)
        unusable = list(checks.template_faults(specs))
        for line in unusable:
            self.stderr.write(f"{options['file']}: {line}")
        if unusable:
            sys.exit(1)
        keys = [name for name in providers.NAMES if credentials.default(name) is not None]
        for spec in specs:
            self.stdout.write(f"{spec.name} {spec.version}: OK")
            for what, how in agent_report.lines(spec):
                self.stdout.write(f"  {what:<8} {how}")
            for warning in agent_report.warnings(spec, keys):
                self.stdout.write(f"  warning: {warning}")
        if options["connect"]:
            self._connect(specs)

    def _connect(self, specs: Sequence[AgentSpec]) -> None:
        findings = doctor.look(specs)
        for finding in findings:
            out = self.stdout if finding.usable else self.stderr
            out.write(f"{finding.agent} MCP server {finding.server}: {finding.words}")
        if not all(finding.usable for finding in findings):
            sys.exit(1)
