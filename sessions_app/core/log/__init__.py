"""The event log: the journal stores events, the broadcast announces them, the feeds deliver them to streams."""
