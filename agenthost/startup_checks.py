"""What a process checks before it starts: the database answers, is this release's, and belongs to these keys."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ImproperlyConfigured

from agenthost import database_diagnosis
from sessions_app.core.records import installation
from sessions_app.core.records.installation import Fault


def check_before_migrating() -> None:
    """The database can be migrated: it answers, no newer release migrated it, and its keys are this process's."""
    _check_reach()
    schema = installation.schema_fault()
    if schema is not None and schema.kind != "older":
        _refuse([schema])
    if schema is None or installation.is_marked():
        _refuse(installation.key_faults())


def check() -> None:
    """The database can be used. Marks that are missing are made."""
    _check_reach()
    _refuse(installation.faults())
    installation.make_marks()


def _check_reach() -> None:
    found = database_diagnosis.why_unusable()
    if found is not None:
        raise ImproperlyConfigured(found)


def _refuse(faults: Sequence[Fault]) -> None:
    if faults:
        raise ImproperlyConfigured("\n".join(map(str, faults)))
