#!/usr/bin/env python
"""Runs Agenthost's commands."""

import sys

if __name__ == "__main__":
    try:
        import django  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("Django is not installed for this Python. Run ops/bootstrap, then: .venv/bin/python manage.py ...")

    from agenthost.command_line import main

    sys.exit(main(sys.argv))
