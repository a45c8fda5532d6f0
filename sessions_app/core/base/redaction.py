"""What of an exception may be logged: ``agents_app.faults``, which the core and the faces use under this name."""

from agents_app.faults import described, kinds

__all__ = ["described", "kinds"]
