"""The project's client of AHP without the server's libraries."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import ROOT

PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("django", "rest_framework", "channels", "celery", "psycopg", "redis"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
from sessions_app.ahp.client.client import Client, connected
from sessions_app.ahp.versions.for_clients import ALL, V0_1, V0_9, V1_0

assert [version.offers for version in ALL] == [("1.0.0",), ("0.9.0",), ("0.1.0",)]
state = V1_0.reduce({"title": "a"}, {"type": "session/titleChanged", "title": "b"}, 0)
assert state["title"] == "b", state
print("ok")
"""


def test_the_client_and_its_reducers_need_no_django() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("ok", 0), done.stderr
