"""The transport of AHP, for all versions: WebSocket connections, JSON-RPC frames, queues and limits.

``consumer`` upgrade, reading, writing, closing > ``connection`` order of requests, answers > ``jsonrpc`` frames · ``outbox`` the
queue of unsent frames · ``upgrade`` key and subprotocol of the handshake · ``rate_limit`` dispatches per second ·
``failures`` exceptions to JSON-RPC errors.
"""
