"""Entry point of manage.py: runs Django's commands, and reports errors that an operator can fix in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError, InterfaceError

from agenthost.doctor import findings
from agenthost.observability import report_fatal

REFUSED = 1
CLOSED_PIPE = 141
"""The exit code that shells report for a program ended by SIGPIPE."""


def main(arguments: Sequence[str]) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")
    try:
        try:
            execute_from_command_line(list(arguments))
        finally:
            # Also after sys.exit: a flush at interpreter shutdown would fail where nothing catches the error.
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        return CLOSED_PIPE
    except ImproperlyConfigured as error:
        if "--traceback" in arguments:
            raise
        if list(arguments[1:2]) == ["doctor"]:
            finding = findings.fail("settings", str(error), "")
            print(findings.document([finding]) if "--json" in arguments else findings.line(finding))  # noqa: T201 - the command's output
        else:
            report_fatal(str(error))
        return REFUSED
    except (DatabaseError, InterfaceError) as error:
        from agenthost import database_diagnosis

        fault = None if "--traceback" in arguments else database_diagnosis.diagnose_error(error)
        if fault is None:
            raise
        report_fatal(fault)
        return REFUSED
    return 0


def discard_stdout() -> None:
    """Redirect stdout to /dev/null after its reader has gone (`| head -1`), so that the last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
