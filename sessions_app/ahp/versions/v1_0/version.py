"""AHP 1.0 as a ``Version``: 0.9 with additions."""

from sessions_app.ahp.versions.v0_9 import negotiation
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.version import make

VERSION = make("1.0", "1.0.0", negotiation.choose_1, Face("1"))
BY_PROVIDER = make("1.0", "1.0.0", negotiation.choose_1, Face("1", by_provider=True))
