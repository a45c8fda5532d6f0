"""AHP: many clients on one live session, over WebSockets.

``transport`` sockets, frames, queues · ``tenant`` delivery to one tenant's connections in a process · ``version`` what a version
of the protocol is · ``versions`` the table of versions, and each of them · ``client`` a client library · ``shapes`` checks of
JSON values · ``uris``.

Nothing outside ``versions`` knows a single version; ``agenthost.routing`` gives the consumer their table. From the socket
inwards: ``transport.consumer`` > ``transport.connection`` > a version's commands > one core call. From the core outwards: the
tenant's feed > ``tenant.switchboard`` > a version's projection, once for each version > ``transport.outbox`` of each connection.
"""
