"""create_tenant: creates a tenant."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from agents_app import installation
from sessions_app.core.tenancy import tenants
from sessions_app.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = "Creates a tenant: a customer of this server, isolated from all others. Running it again changes nothing."
    examples = """
create_tenant acme
create_tenant acme --title "Acme Ltd."
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", metavar="SLUG", help="its name in commands and lists: a-z, 0-9 and inner hyphens")
        parser.add_argument("--title", default="", metavar="T", help="its display name")

    def handle(self, *_args: Any, **options: Any) -> None:
        slug, title = options["slug"], options["title"]
        tenant, created = tenants.create(slug, title, actor=self.actor, address=self.address)
        if created:
            self.explain(f"Created the tenant {slug}. Next: {installation.manage(f'create_key {slug} --name NAME')}")
        elif title and tenant.title != title:
            self.explain(f"The tenant {slug} exists already and keeps its title {tenant.title!r}; change it in the admin.")
        else:
            self.explain(f"The tenant {slug} exists already.")
        self.stdout.write(tenant.slug)
