"""Signed statements of this installation. The signature is an HMAC with a key that is derived from the key ring."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from agents_app import exact_json
from sessions_app.core.base import sealing

_SIGNATURE = "signature"


def sign(statement: Mapping[str, Any]) -> str:
    """The statement as JSON text, with a signature by the newest key of the ring."""
    document = {**statement, "keyId": sealing.key_ids()[0]}
    return exact_json.dumps({**document, _SIGNATURE: _signature(settings.AGENTHOST_KEY_RING[0], document)})


def fault(text: str) -> str | None:
    """Why this text is no certificate of this installation; None if it is one and was not changed."""
    try:
        document = exact_json.loads(text)
    except exact_json.NotJSON:
        return "it is not JSON"
    if not isinstance(document, dict) or not isinstance(document.get(_SIGNATURE), str):
        return "it has no signature"
    signature = document.pop(_SIGNATURE)
    for key_id, key in zip(sealing.key_ids(), settings.AGENTHOST_KEY_RING, strict=True):
        if key_id == document.get("keyId"):
            same = hmac.compare_digest(_signature(key, document), signature)
            return None if same else "it was changed: the signature does not fit"
    return "the key that signed it is not in AGENTHOST_KEY_RING"


def _signature(key: bytes, document: Mapping[str, Any]) -> str:
    derived = hashlib.sha256(b"agenthost certificate\0" + key).digest()
    ordered = exact_json.dumps(dict(sorted(document.items())))
    return hmac.digest(derived, ordered.encode(), hashlib.sha256).hex()
