"""Errors of backups and restores."""

from __future__ import annotations


class BackupError(Exception):
    """The operator's fault and its fix, in one line."""
