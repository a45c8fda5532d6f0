"""The HTTP/1.1 transport in front of the ASGI application, with limits per connection and per client address."""
