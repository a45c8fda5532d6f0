"""The chat imports nothing of the server."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import sys
import agenthost.chat.command
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"django", "sessions_app", "agents_app", "celery", "channels"}))
"""


def test_the_chat_imports_nothing_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
