"""The HTTP proxy that is a sandbox's only way to a network."""
