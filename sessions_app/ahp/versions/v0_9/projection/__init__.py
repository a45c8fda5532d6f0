"""The core's events and states in AHP 0.9 and 1.0. Pure: no rows, no clock, no waiting.

``actions`` events as actions · ``sessions`` and ``chats`` states and summaries · ``values`` used by all · ``agents`` ·
``notifications`` about the list of sessions. ``Face`` says which of both versions: 1.0 shows the flags of chats, and the chats of
a session in lists.

``actions``, ``sessions`` and ``chats`` agree: the state at N, with the actions after N applied by the reducers, is the present
state.
"""
