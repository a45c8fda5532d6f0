"""What a protocol's version makes of the core's events and states. Pure: no rows, no clock, no waiting."""
