"""create_key: issues an API key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from sessions_app.core.base.caller import SCOPES
from sessions_app.core.tenancy import keys
from sessions_app.management.durations import duration
from sessions_app.management.operator import OperatorCommand, names


class Command(OperatorCommand):
    help = "Issues an API key for a tenant. The key is the last line of stdout and is shown only once: only its hash is stored."
    examples = """
create_key acme --name backend
create_key acme --name dashboard --scopes meta:read,sessions:read --expires 30d
create_key acme --name ci --agents demo --expires 12h | tail -n 1
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--name", required=True, metavar="N", help="the purpose of the key, shown in lists")
        parser.add_argument(
            "--scopes",
            default="*",
            metavar="a,b",
            help=f"the key's scopes, from {', '.join(SCOPES)} (default: *, everything except members and audit)",
        )
        parser.add_argument(
            "--expires", type=duration, metavar="30d", help="its lifetime: a number and s, m, h, d or w (default: unlimited)"
        )
        parser.add_argument("--agents", metavar="a,b", help="the agents it may use (default: all that the tenant may use)")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        issued = keys.issue(
            tenant,
            name=options["name"],
            scopes=names(options["scopes"]),
            expires_at=timezone.now() + options["expires"] if options["expires"] is not None else None,
            allowed_agents=names(options["agents"]) if options["agents"] is not None else None,
            actor=self.actor,
            address=self.address,
        )
        self.explain(
            f"Issued a key for {tenant.slug}; scopes: {', '.join(keys.shown_scopes(issued.key))}. It is not shown again."
        )
        if tenant.suspended_at is not None:
            self.explain(f"The tenant {tenant.slug} is suspended: the key is refused until the tenant is resumed.")
        self.stdout.write(issued.raw)
