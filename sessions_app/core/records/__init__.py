"""What is stored of a session and read back: history, options, settings, clients, addresses, dispatched actions."""
