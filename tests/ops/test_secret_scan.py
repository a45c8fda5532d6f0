"""Credentials in the project's files and history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ops import secret_scan

# Put together here, or this file would contain what it is about. Random, and issued by nobody.
RANDOM = "q7Vb2NxK9" + "rT4mWc8ZsY1" + "pLd6HfJ3gAe5"
REAL = {
    "own key": f"KEY=ah_{'k3Jd8sQz'}_{RANDOM}Xw0u",
    "provider": f"api_key = 'sk-ant-{RANDOM}'",
    "Google": f"AIza{RANDOM}Xw0",
    "AWS": f"AKIA{'Q7VB2NXK9RT4MWC8'}",
    "GitHub": f"https://x:ghp_{RANDOM}Xw0uQ9@host",
    "private key": f"-----BEGIN {'PRIVATE'} KEY-----\n{RANDOM}{RANDOM}\n",
    "private key in a string": f'"-----BEGIN EC {"PRIVATE"} KEY-----\\n{RANDOM}{RANDOM}"',
    "address": f"postgres://agenthost:{RANDOM}@db/agenthost",
    "setting": f"AGENTHOST_KEY_RING={RANDOM}{RANDOM}=",
}
MADE_UP = [
    "ah_aaaaaaaa_" + "a" * 43,
    "sk-" + "0123456789" * 4,
    "postgres://agenthost:password-of-the-owner@db.internal:5432/agenthost",
    "AGENTHOST_SECRET_KEY=a-key-of-production-has-fifty-letters-at-the-very-least",
    "OPENAI_API_KEY=…",
    "token = secrets.token_urlsafe(32)",
]


@pytest.mark.parametrize("text", REAL.values(), ids=REAL.keys())
def test_a_credential_is_found_and_its_value_is_not_repeated(text: str) -> None:
    found = secret_scan.found_in(f"first\n{text}\n")
    assert found
    assert found[0][0] == 2
    assert not any(RANDOM[:12] in what for _, what in found)


@pytest.mark.parametrize("text", MADE_UP)
def test_a_value_that_shows_that_it_is_made_up_is_left_alone(text: str) -> None:
    assert secret_scan.found_in(text) == []


def test_a_credential_that_was_removed_is_found_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(secret_scan, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    git("init", "-q")
    page.write_text(REAL["private key"])
    git("add", ".")
    git("commit", "-q", "-m", "one")
    page.write_text("nothing")
    git("commit", "-q", "-a", "-m", "two")
    (found,) = secret_scan.in_history()
    assert found.endswith(": page.md: a private key")
