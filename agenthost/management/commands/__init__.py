"""Management commands of the wiring."""
