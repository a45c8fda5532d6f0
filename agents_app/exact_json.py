"""JSON that comes back as it went in: order of keys, big integers and ``1.0`` survive.

The standard library's codec, made strict (no NaN, no Infinity, not even by overflow) and compact.
orjson is faster but rounds integers beyond 64 bits, so it is used only where no client's numbers pass.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class NotJSON(ValueError):
    """The text is not strict JSON."""


def _refuse_constant(name: str) -> NoReturn:
    raise NotJSON(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotJSON("a number is too large")
    return value


def loads(text: str | bytes) -> Any:
    """Parse strict JSON; ``NotJSON`` for anything else, nesting too deep for the parser included."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except NotJSON:
        raise
    except (ValueError, RecursionError) as error:
        raise NotJSON("not JSON") from error


def dumps(value: Any) -> str:
    """One line of JSON, compact, text unescaped, keys in their own order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
