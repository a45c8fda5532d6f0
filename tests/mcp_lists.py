"""The first look at an agent and its MCP servers, on a machine under pressure."""

from __future__ import annotations

import pytest

from agents_app.mcp import catalogue


def wait_for_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look at an agent waits for its servers' tools as long as it takes."""
    monkeypatch.setattr(catalogue, "FIRST_WAIT_SECONDS", 60.0)
    monkeypatch.setattr(catalogue, "_IMPORT_SECONDS", 60.0)
