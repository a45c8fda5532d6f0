"""Descriptions of exceptions that are safe to log: ``agents_app.faults`` for the core and the faces."""

from agents_app.faults import described, kinds

__all__ = ["described", "kinds"]
