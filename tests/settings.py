"""The product's settings, with keys, names and plain HTTP for the tests where the environment gives none.

With a Postgres or a Redis the settings are production's, which starts without keys and names for nobody.
"""

from __future__ import annotations

import base64
import os

os.environ.setdefault("AGENTHOST_SECRET_KEY", "only-for-tests-" * 4)
os.environ.setdefault("AGENTHOST_KEY_RING", base64.b64encode(bytes(range(32))).decode())

os.environ.setdefault("AGENTHOST_ALLOWED_HOSTS", "*")
os.environ.setdefault("AGENTHOST_PLAIN_HTTP", "yes")
os.environ.setdefault("AGENTHOST_STAFF_SECOND_FACTOR", "no")

from agenthost.settings import *  # noqa: F403
