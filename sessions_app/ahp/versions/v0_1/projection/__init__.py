"""The core's events and states in AHP 0.1. Pure: no rows, no clock, no waiting.

``actions`` events as actions · ``sessions`` a session's state and summary · ``values`` used by both · ``alike`` and ``calls``
what later versions show in the same way · ``agent_settings`` agents and their settings · ``notifications`` about the list
of sessions.

``actions`` and ``sessions`` agree: the state at N, with the actions after N applied by the reducers, is the present state.
"""
