"""The entry of manage.py: Django's commands, with one line where an operator can do something about an error."""

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
"""What a shell reports for a program that SIGPIPE has ended."""


def main(arguments: Sequence[str]) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")
    try:
        try:
            execute_from_command_line(list(arguments))
        finally:
            # Also when a command exits by itself: what is buffered would fail where nobody can catch it.
            sys.stdout.flush()
    except BrokenPipeError:
        give_up_stdout()
        return CLOSED_PIPE
    except ImproperlyConfigured as error:
        if "--traceback" in arguments:
            raise
        if list(arguments[1:2]) == ["doctor"]:
            fault = findings.fail("settings", str(error), "")
            print(findings.document([fault]) if "--json" in arguments else findings.line(fault))  # noqa: T201 - a command's answer
        else:
            report_fatal(str(error))
        return REFUSED
    except (DatabaseError, InterfaceError) as error:
        from agenthost import database_diagnosis

        found = None if "--traceback" in arguments else database_diagnosis.explanation(error)
        if found is None:
            raise
        report_fatal(found)
        return REFUSED
    return 0


def give_up_stdout() -> None:
    """Nobody reads stdout any more (`| head -1`): what is still buffered goes nowhere, without a complaint at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
