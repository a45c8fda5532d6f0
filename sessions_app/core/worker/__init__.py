"""The worker process: running turns, leases, take-over, summaries, retention, housekeeping."""
