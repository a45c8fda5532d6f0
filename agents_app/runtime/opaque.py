"""What a provider wants back unread: how it is kept with a message, and who gets it again. Pure.

The text names the model that wrote it. Signatures and reasoning items mean nothing to another model, and a
vendor refuses those of another: whoever builds a request asks ``returned`` and gets them for the same model only.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents_app import exact_json
from agents_app.runtime.interface import Opaque
from agents_app.runtime.messages import Message


def kept(full_model: str, parts: Sequence[Opaque]) -> str | None:
    """The text that is stored as ``Message.provider_data``."""
    if not parts:
        return None
    return exact_json.dumps({"model": full_model, "items": [{"part": part.part, "data": part.data} for part in parts]})


def returned(message: Message, full_model: str) -> list[Opaque]:
    """The parts of a message that ``full_model`` wrote itself, in their order; none for any other model."""
    if message.provider_data is None or not full_model:
        return []
    # Before parsing: most of a long history may be another model's.
    if not message.provider_data.startswith(f'{{"model":{exact_json.dumps(full_model)},'):
        return []
    try:
        items = exact_json.loads(message.provider_data)["items"]
        return [Opaque(item["part"], item["data"]) for item in items]
    except (exact_json.NotJSON, KeyError, TypeError):
        return []
