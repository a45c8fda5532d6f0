"""The chat and the client library import nothing of the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
import {module}
loaded = {{name.partition(".")[0] for name in sys.modules}}
print(*sorted(loaded & {{"django", "sessions_app", "agents_app", "celery", "channels"}}))
"""


@pytest.mark.parametrize("module", ["agenthost.chat.command", "agenthost.client"])
def test_clients_import_nothing_of_the_server(module: str) -> None:
    code = LOADED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
