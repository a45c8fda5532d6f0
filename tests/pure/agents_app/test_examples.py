"""The examples are agents files that a server accepts."""

from __future__ import annotations

from agents_app import testing
from agents_app.testing import Script, call
from tests.paths import ROOT

CODER = ROOT / "examples" / "coding_agent" / "agents.toml"
READING = {"list_files", "search_files", "read_file"}


def test_the_coding_agent_edits_with_permission_and_reads_what_is_trusted() -> None:
    asked: list[str] = []

    def permit(name: str, _arguments: object) -> bool:
        asked.append(name)
        return name in READING or name == "edit_file"

    conversation = testing.Conversation(
        CODER,
        model=Script(
            call("list_files"),
            call("search_files", pattern="teh"),
            call("edit_file", path="README.md", old_text="teh", new_text="the"),
            call("write_file", path="new.md", content="more\n"),
            "I corrected a word.",
        ),
        files={"README.md": "This is teh project.\n"},
        permit=permit,
    )
    turn = conversation.say("Correct the spelling.")
    assert turn.text == "I corrected a word."
    assert asked == ["list_files", "search_files", "edit_file", "write_file"]
    assert conversation.files == {"README.md": "This is the project.\n"}
    assert turn.call("write_file").denied
