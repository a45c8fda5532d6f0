"""AHP 1.0 as a ``Version``: 0.9 with additions."""

from sessions_app.ahp.versions.v0_9 import negotiation
from sessions_app.ahp.versions.v0_9.version import make_all

VERSIONS = make_all("1.0", "1.0.0", negotiation.choose_1, "1")
