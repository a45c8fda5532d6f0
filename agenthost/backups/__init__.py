"""Backups of an installation, and restoring them (docs/backups.md)."""
