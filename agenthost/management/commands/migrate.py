"""Django's migrate, which refuses databases of other programs and of newer releases, and stores markers of schema and keys.

It does not stop a busy server: a statement that waits for a lock makes later ones wait behind it, so it gives up after
``LOCK_SECONDS`` and is tried again. With AGENTHOST_RUNTIME_ROLE it grants that role the privileges of the server's processes
at the end.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connection

from agenthost import startup_checks
from agenthost.postgres import roles
from agenthost.sqlite import new_database
from sessions_app.core.base import database, lock_timeouts
from sessions_app.core.records import database_checks

LOCK_SECONDS = 2.0
"""Less than AGENTHOST_DATABASE_LOCK_TIMEOUT, so that requests that wait behind a migration do not fail."""
LOCK_TRIES, LOCK_PAUSE = 150, 2.0
OTHER_PURPOSES = ("app_label", "migration_name", "check_unapplied", "plan", "fake", "fake_initial", "prune")
"""Options of the command with which it does not apply all migrations."""


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            startup_checks.check_before_migrating()
            # Before the first migration, because processes of the previous release still run meanwhile.
            database_checks.allow_previous_release()
            applies_all = not any(options.get(name) for name in OTHER_PURPOSES)
            if applies_all and (made := new_database.make(connection)) and options["verbosity"]:
                self.stdout.write(f"Made the tables of a new database, as {made} migrations leave them.")
            with roles.granted_on_new_tables(settings.AGENTHOST_RUNTIME_ROLE):
                self._migrate(*args, **options)
                if settings.AGENTHOST_RUNTIME_ROLE:
                    roles.grant(settings.AGENTHOST_RUNTIME_ROLE)
            # A new database had no table for it; its server may go back to the previous release, too.
            database_checks.allow_previous_release()
            if database_checks.schema_fault() is None:
                startup_checks.check_after_migrating()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None

    def _migrate(self, *args: Any, **options: Any) -> None:
        """Migrations that were applied stay applied; the one that met a lock is tried again."""
        for tries in range(1, LOCK_TRIES + 1):
            try:
                with lock_timeouts.at_most(LOCK_SECONDS):
                    super().handle(*args, **options)
                return
            except OperationalError as error:
                if not database.is_lock_refused(error):
                    raise
                if tries == LOCK_TRIES:
                    raise CommandError(
                        f"another transaction has locked a table for more than {LOCK_TRIES * (LOCK_SECONDS + LOCK_PAUSE):.0f} s"
                        f" ({str(error).strip().splitlines()[0]}). End it (pg_stat_activity shows it) and run this again."
                    ) from None
            self.stderr.write(f"a table is locked by another transaction; trying again ({tries} of {LOCK_TRIES})")
            time.sleep(LOCK_PAUSE)
