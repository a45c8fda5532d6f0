"""The stored parts of a session: history, options, settings, clients, addresses, dispatched actions."""
