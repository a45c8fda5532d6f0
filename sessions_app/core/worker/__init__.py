"""The process that runs turns, and the work it does beside them: leases, take-over, retention, summaries."""
