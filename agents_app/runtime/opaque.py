"""Stores a provider's opaque data with a message and returns it to the same model. Pure.

Signatures and reasoning items mean nothing to another model, and a vendor refuses those of another one. So the
stored text names the model that wrote it, and ``returned`` gives it to that model only.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents_app import exact_json
from agents_app.runtime.interface import Opaque
from agents_app.runtime.messages import Message


def kept(full_model: str, parts: Sequence[Opaque]) -> str | None:
    """The text to store as ``Message.provider_data``."""
    if not parts:
        return None
    return exact_json.dumps({"model": full_model, "items": [{"part": part.part, "data": part.data} for part in parts]})


def returned(message: Message, full_model: str) -> list[Opaque]:
    """The parts of a message that ``full_model`` wrote itself, in their order; none for any other model."""
    if message.provider_data is None or not full_model:
        return []
    # Checked before parsing, because most of a long history may be another model's.
    if not message.provider_data.startswith(f'{{"model":{exact_json.dumps(full_model)},'):
        return []
    try:
        items = exact_json.loads(message.provider_data)["items"]
        return [Opaque(item["part"], item["data"]) for item in items]
    except (exact_json.NotJSON, KeyError, TypeError):
        return []
