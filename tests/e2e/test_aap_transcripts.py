"""The wire of each AAP version in each stream mode equals transcripts/, byte by byte."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.e2e import transcript
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
LISTED = 51
"""One more than a page of the list holds."""


@pytest.mark.rule("A14", "A54", "A55", "A56", "A57", "A58", "A59", "A61", "A64", "A65", "A70", "A6")
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_the_wire_equals_the_transcript_byte_for_byte(path: Path, server: Server, model: ModelServer) -> None:
    # A tenant of its own, and a key for agents whose description no other test has a reason to change.
    agents = "echo,climber" if path.stem.endswith("-lists") else ""
    client = server.client(server.make_keys(f"t{secrets.token_hex(4)}/player/*/{agents}")[0])
    sessions = [client.create() for _ in range(LISTED)] if agents else []
    version, _, _ = path.stem.partition("-")
    assert client.key is not None
    text = path.read_text(encoding="utf-8")
    played = transcript.Play(server.origin(), client.key, f"/aap/{version}", model, sessions).perform(text)
    if os.environ.get("AGENTHOST_TEST_RECORD"):
        path.write_text(played, encoding="utf-8")
        return
    assert played == text


def test_every_version_has_transcripts_of_every_mode() -> None:
    stems = {path.stem for path in TRANSCRIPTS}
    for version in {stem.partition("-")[0] for stem in stems}:
        assert {f"{version}-{part}" for part in ("delta", "message", "none", "lists")} <= stems
