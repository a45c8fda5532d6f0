"""The versions of AHP that this host serves: the one table.

Each version has a folder: ``wire`` (JSON shapes), ``reducers``, ``projection`` (events and states), ``commands``, ``dispatch``
(actions of clients), ``errors``, and ``version``, which makes a ``Version`` of them. ``for_clients`` has the client's side.
docs/howto/ahp-version.md says how to add one.
"""

from functools import cache

from sessions_app.ahp.version import Versions


@cache
def served() -> Versions:
    """Imported when first called: ``wire`` and ``reducers`` in the folders below are used without Django."""
    from sessions_app.ahp.versions.v0_1.version import VERSION as V0_1
    from sessions_app.ahp.versions.v0_9 import version as v0_9
    from sessions_app.ahp.versions.v1_0 import version as v1_0

    return Versions(*v1_0.VERSIONS, *v0_9.VERSIONS, V0_1, default=V0_1)
