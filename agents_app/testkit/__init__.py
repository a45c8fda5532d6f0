"""Implementation of ``agents_app.testing``: runs agents without a server."""
