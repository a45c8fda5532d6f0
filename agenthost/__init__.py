"""Wiring: settings, addresses, the server's layers and processes. Nothing below imports it."""
