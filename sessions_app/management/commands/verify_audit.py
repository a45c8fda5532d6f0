"""verify_audit: recomputes the chains of the audit and reports every break."""

from __future__ import annotations

import sys
from typing import Any

from sessions_app.core.tenancy import audit_chain
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import AuditLink, AuditRecord

_MOST = 1000


class Command(OperatorCommand):
    help = (
        "Recomputes the keyed hashes of all audit records, their links and the daily seals, and prints each break: which"
        " chain, number and record, and whether it was changed, deleted, inserted, reordered or truncated. Exit code 1 if"
        " there are breaks."
    )
    examples = """
verify_audit
"""

    def handle(self, *_args: Any, **_options: Any) -> None:
        count = 0
        for found in audit_chain.verify():
            count += 1
            if count > _MOST:
                self.explain(f"There are more than {_MOST} breaks.")
                break
            self.stdout.write(str(found))
        linked, records = AuditLink.objects.count(), AuditRecord.objects.count()
        self.explain(f"{records} records, {linked} of them linked, {count or 'no'} break{'' if count == 1 else 's'}.")
        if count:
            sys.exit(1)
