"""docs/protocols/events.md lists the kinds of events that there are."""

from __future__ import annotations

import re

from sessions_app.aap.stream import event_names
from sessions_app.core.base.events import STREAM_KINDS, Kind
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "protocols" / "events.md").read_text()
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_kind_has_a_section_and_every_section_a_kind() -> None:
    assert set(SECTIONS) == {kind.value for kind in Kind}


def test_every_section_has_the_same_entries() -> None:
    for kind, text in SECTIONS.items():
        assert re.findall(r"^- ([^:]+):", text, re.MULTILINE) == ["Payload", "Written by", "AAP", "AHP 0.1", "Storage"], kind


def test_stream_events_are_marked_as_such() -> None:
    marked = {kind for kind, text in SECTIONS.items() if "- Storage: stream" in text}
    assert marked == {kind.value for kind in STREAM_KINDS}


def test_every_event_of_aap_is_made_of_one_of_them() -> None:
    said = {name for text in SECTIONS.values() for name in re.findall(r"- AAP: `(\w+)`", text)}
    assert said == event_names("delta") | event_names("message")
