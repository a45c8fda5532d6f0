"""Secrets that the embedded server makes for itself."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agenthost import keepsakes


def test_all_who_start_together_get_the_same(tmp_path: Path) -> None:
    barrier, found = threading.Barrier(8), []

    def start() -> None:
        barrier.wait(90)
        found.append(keepsakes.kept(tmp_path / "var", "secret", keepsakes.new_secret))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["secret"]
    assert stat.S_IMODE((tmp_path / "var" / "secret").stat().st_mode) == 0o600


def test_an_emptied_file_is_not_silently_replaced(tmp_path: Path) -> None:
    (tmp_path / "key_ring").write_text("\n")
    with pytest.raises(ImproperlyConfigured, match="key_ring"):
        keepsakes.kept(tmp_path, "key_ring", keepsakes.new_sealing_key)


def test_a_directory_that_cannot_be_written_names_its_variable(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file")
    with pytest.raises(ImproperlyConfigured, match="AGENTHOST_VAR_DIR"):
        keepsakes.kept(tmp_path / "var", "secret", keepsakes.new_secret)
