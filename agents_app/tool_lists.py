"""Size limit of a list of tool declarations, which every model request and every ``/meta`` carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents_app import exact_json

_most_bytes = 512 * 1024


def set_most_bytes(count: int) -> None:
    """Set the operator's limit of one list."""
    global _most_bytes
    _most_bytes = count


def most_bytes() -> int:
    return _most_bytes


def size(name: str, title: str | None, description: str, parameters: Mapping[str, Any]) -> int:
    """Bytes of one declaration as JSON."""
    declared = {"name": name, "title": title, "description": description, "parameters": parameters}
    return len(exact_json.dumps(declared).encode("utf-8", "surrogatepass"))
