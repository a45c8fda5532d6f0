"""Metrics in Prometheus's format, at a port of their own: ``server`` serves them, ``collectors`` reads some for each scrape."""
