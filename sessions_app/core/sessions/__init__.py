"""What clients do with whole sessions: create, fork, truncate, list, watch, fill forms, queue messages."""
