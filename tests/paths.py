"""Paths in the repository that tests use."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
