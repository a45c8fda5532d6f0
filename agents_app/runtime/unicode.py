"""Removes U+0000 and lone surrogates from text of models and tools, so that any database can store it (A96)."""

from __future__ import annotations

from typing import Any

_REPLACEMENT = "\ufffd"


def storable(text: str) -> str:
    """U+0000 and lone surrogates become U+FFFD; surrogate halves that belong together are joined."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def storable_value(value: Any) -> Any:
    """``storable`` applied to every string of a JSON value, keys included."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_value(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable_value(item) for key, item in value.items()}
    return value


class Mender:
    """``storable`` for a stream of texts that may cut a surrogate pair in two."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return storable(text)

    def is_whole(self, text: str) -> bool:
        """Whether ``feed`` would return all of the text at once, and nothing before it."""
        return bool(text) and not self._held and not "\ud800" <= text[-1] <= "\udbff"

    def rest(self) -> str:
        held, self._held = self._held, ""
        return storable(held)
