"""set_staff: gives an account a role in the admin, or takes it away."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from agents_app import installation
from sessions_app.management.operator import OperatorCommand, names
from sessions_app.models import Staff, StaffRole

_NONE = "none"


class Command(OperatorCommand):
    help = "Gives an account a role in the admin, or takes it away. Superusers need none. The change is recorded in the audit."
    examples = """
set_staff ann operator --transcripts
set_staff bob auditor --tenants acme,initech
set_staff bob none
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account", metavar="ACCOUNT", help="the account's name")
        parser.add_argument("role", choices=[*StaffRole.values, _NONE], help="its role; none takes it away")
        parser.add_argument("--transcripts", action="store_true", help="may read what users and models wrote")
        parser.add_argument("--tenants", default="", metavar="T,T", help="sees these tenants only (default: all)")

    @transaction.atomic
    def handle(self, *_args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["account"]).first()
        if user is None:
            hint = installation.manage("createsuperuser")
            raise CommandError(f"There is no account {options['account']!r}. The first one is made with: {hint}")
        if options["role"] == _NONE:
            for staff in Staff.objects.filter(user=user):
                staff.delete()
            self.explain(f"{user.get_username()} has no role in the admin.")
            return
        tenants = [self.tenant(slug) for slug in names(options["tenants"])]
        staff = Staff.objects.filter(user=user).first() or Staff(user=user)
        staff.role, staff.reads_transcripts, staff.limited = options["role"], options["transcripts"], bool(tenants)
        staff.save()
        staff.tenants.set(tenants)
        self.explain(f"{user.get_username()} is {staff.role}{' of ' + options['tenants'] if tenants else ''}.")
