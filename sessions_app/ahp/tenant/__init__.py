"""One tenant's AHP connections in one process, of all versions.

``switchboard`` delivers the tenant's events to subscribers · ``subscribing`` finds, snapshots and replays channels ·
``notifications`` about the list of sessions · ``presence`` of clients · ``session_counts`` for limited keys.
"""
