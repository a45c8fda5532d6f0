"""Descriptions of exceptions that are safe to log: ``agents_app.redaction`` for the core and the faces."""

from agents_app.redaction import described, kinds

__all__ = ["described", "kinds"]
