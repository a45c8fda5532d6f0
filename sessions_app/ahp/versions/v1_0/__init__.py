"""AHP 1.0: 0.9 with additions."""
