"""Names of queues: what an agents file and AGENTHOST_QUEUES may say, and what an error proposes."""

from __future__ import annotations

import pytest

from agents_app import queue_names


@pytest.mark.parametrize("name", ["default", "heavy", "gpu-2", "x", "a" * 40])
def test_these_are_names(name: str) -> None:
    assert queue_names.fault(name) is None
    assert queue_names.parsed(name) == name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Heavy", "heavy"),
        ("heavy gpu", "heavy-gpu"),
        ("heavy_gpu", "heavy-gpu"),
        ("2nd", "nd"),
        ("agenthost", "default"),
        ("heavy.eu ", "heavy-eu"),
        ("ünter", "nter"),
        ("a" * 41, None),
        ("", None),
        ("-", None),
        ("*", None),
        ("Unacked", None),
        ("unacked", None),
        ("other", None),
        ("heavy\n", "heavy"),
    ],
)
def test_other_texts_are_refused_with_the_name_that_was_probably_meant(name: str, meant: str | None) -> None:
    fault = queue_names.fault(name)
    assert fault is not None
    assert fault.partition("did you mean ")[2].rstrip("?") == (meant or "")
    with pytest.raises(ValueError, match="^" + fault[:10]):
        queue_names.parsed(name)
