"""invite: makes an invitation to a tenant and prints its link."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.core.base.errors import DomainError
from sessions_app.core.tenancy import invitations, members
from sessions_app.management.operator import OperatorCommand
from sessions_app.models import Role

PATH = "/accounts/invitation/?token="


class Command(OperatorCommand):
    help = (
        "Makes an invitation to a tenant and prints its link, once. The link works once, for seven days; who opens it signs in"
        " or makes an account, and is a member of the tenant then."
    )
    examples = """
invite acme --role owner --url https://agents.example.org
invite acme --role reader --email ann@acme.example
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--role", default=Role.OWNER.value, metavar="R", help=f"{', '.join(Role.values)} (default: owner)")
        parser.add_argument(
            "--email", default="", metavar="E", help="whom it is for; shown in lists, and proposed as account name"
        )
        parser.add_argument("--url", default="", metavar="U", help="the server's address, put in front of the link's path")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant, role = self.tenant(options["tenant"]), members.role_of(options["role"])
        try:
            issued = invitations.issue(tenant, role, options["email"], actor=self.actor, address=self.address)
        except DomainError as error:
            raise CommandError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
        until = issued.invitation.expires_at
        self.explain(f"An invitation to {tenant.slug} as {role}. It works once, until {until:%Y-%m-%d %H:%M} UTC:")
        self.stdout.write(f"{options['url'].rstrip('/')}{PATH}{issued.token}")
