"""export_audit: writes the audit as JSON Lines, once or continuously."""

from __future__ import annotations

import json
import time
from typing import Any

from django.core.management.base import CommandParser
from django.db import close_old_connections

from sessions_app.core.tenancy import audit, audit_export
from sessions_app.management.operator import OperatorCommand

_PAUSE = 2.0


class Command(OperatorCommand):
    help = (
        "Writes linked audit records as JSON Lines to stdout, oldest first, each with its place in the chain and its hash."
        " --follow goes on as new ones are linked; --after continues where an earlier export ended. Recorded in the audit."
    )
    examples = """
export_audit > audit.jsonl
export_audit --tenant acme --after 4711
export_audit --follow >> /var/log/agenthost/audit.jsonl
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", default="", metavar="T", help="only this tenant's records (default: all)")
        parser.add_argument("--after", type=int, default=0, metavar="N", help="only after this `link` of an earlier export")
        parser.add_argument("--follow", action="store_true", help="wait for new records, until it is interrupted")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"]) if options["tenant"] else None
        audit.record(
            actor=self.actor, address=self.address, action=audit.Action.AUDIT_EXPORTED, target="audit", tenant=tenant,
            detail=f"after link {options['after']}{', continuously' if options['follow'] else ''}",
        )  # fmt: skip
        after = options["after"]
        try:
            while True:
                for line in audit_export.lines(after, tenant):
                    self.stdout.write(json.dumps(line, ensure_ascii=False))
                    after = line["link"]
                self.stdout.flush()
                if not options["follow"]:
                    return
                close_old_connections()
                time.sleep(_PAUSE)
        except KeyboardInterrupt:
            return
