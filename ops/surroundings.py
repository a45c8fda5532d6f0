"""The old name of ops/clean_environment.py, for ops/suite.py."""

from ops.clean_environment import inherited

__all__ = ("inherited",)
