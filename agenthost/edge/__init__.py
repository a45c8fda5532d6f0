"""The HTTP server's edge: the transport in front of the ASGI application, and limits per connection and per address."""
