"""``python -m agenthost.chat``: the same program as ``agenthost-chat``."""

from __future__ import annotations

import sys

from agenthost.chat.command import main

if __name__ == "__main__":
    sys.exit(main())
