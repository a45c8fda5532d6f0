"""The documentation compared with the code."""
