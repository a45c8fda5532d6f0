"""Tools that other servers offer, over the Model Context Protocol's streamable HTTP.

A process knows what each server offers by its *catalogue* (catalogue.py), whose tools become the agent's own
(listing.py). A run calls them over *connections* of its conversation (pool.py, connection.py). The protocol
itself is the official library's; it is imported when an agent first has such a server.
"""
