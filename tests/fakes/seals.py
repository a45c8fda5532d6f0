"""Marks that only the scripted vendor can make, and knows again: what stands for a signature or encrypted content."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any


def seal(*facts: Any) -> str:
    """Base64. The same facts have the same seal, so that whoever changes one is found out."""
    written = json.dumps(facts, sort_keys=True, ensure_ascii=True).encode()
    return base64.b64encode(hmac.digest(b"the scripted vendor", written, hashlib.sha256)).decode()


def holds(given: object, *facts: Any) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), seal(*facts).encode())
