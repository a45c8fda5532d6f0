"""The servers of the black-box suite: both protocols on each."""

from tests.e2e.conftest import server

__all__ = ["server"]
