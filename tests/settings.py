"""The product's settings, with keys for the tests where the environment gives none.

With a Postgres or a Redis the settings are production's, which starts without its keys for nobody.
"""

from __future__ import annotations

import base64
import os

os.environ.setdefault("AGENTHOST_SECRET_KEY", "only-for-tests-" * 4)
os.environ.setdefault("AGENTHOST_KEY_RING", base64.b64encode(bytes(range(32))).decode())

from agenthost.settings import *  # noqa: F403
