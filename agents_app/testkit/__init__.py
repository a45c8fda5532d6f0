"""Agents run without a server: what ``agents_app.testing`` is made of."""
