"""AHP: many clients on one live session, over WebSockets.

Pure, and free of Django and the core: ``wire`` (what travels), ``reducers`` (what actions make of states), ``jsonrpc``
(frames), ``negotiation`` (versions), ``upgrade`` (who asks), ``outbox`` (what waits to be sent), ``client`` and ``transcript``
(the other end). Pure, made of the core's values: ``projection`` (events and states in the protocol's words).

From the socket inwards: ``consumer`` (frames in and out) > ``connection`` (order, answers) > ``commands`` and ``dispatch`` (one
core call each) and ``snapshots``. From the core outwards: ``switchboard`` (a tenant's events to whom they concern) and
``bulletin`` (notifications). ``attendance`` looks after keys and presence.
"""
