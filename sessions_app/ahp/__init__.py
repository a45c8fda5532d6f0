"""AHP: many clients on one live session, over WebSockets.

Pure, and free of Django and the core: ``wire`` (what travels), ``reducers`` (what actions make of states), ``jsonrpc``
(frames), ``negotiation`` (versions).
"""
