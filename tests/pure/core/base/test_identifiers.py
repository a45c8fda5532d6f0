"""Public ids: of one form, and every letter as likely as any other."""

from __future__ import annotations

import random
import re
import secrets
from collections import Counter

import pytest

from sessions_app.core.base.identifiers import new_id


def test_an_id_has_its_prefix_and_24_letters_or_digits() -> None:
    found = {new_id("turn") for _ in range(1000)}
    assert len(found) == 1000
    assert all(re.fullmatch(r"turn_[A-Za-z0-9]{24}", each) for each in found)


def test_no_letter_is_favoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_bytes", random.Random(1).randbytes)
    counts = Counter("".join(new_id("")[1:] for _ in range(10_000)))
    assert len(counts) == 62
    # The remainder of 256 would make some letters a quarter more likely.
    assert max(counts.values()) < 1.1 * min(counts.values())
