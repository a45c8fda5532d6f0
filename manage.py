#!/usr/bin/env python
"""Runs Agenthost's commands."""

import sys

if __name__ == "__main__":
    from agenthost.command_line import main

    sys.exit(main(sys.argv))
