"""Server-sent events, cut into chunks at any byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app.providers import sse


def fed(chunks: list[bytes]) -> list[bytes]:
    splitter = sse.EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return [b"\n".join(lines) for lines in events + splitter.finish()]


@given(
    texts=st.lists(st.text(min_size=1).map(lambda text: text.replace("\n", "").replace("\r", "") or "x"), max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=20), max_size=60),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_events_are_the_same_however_the_bytes_are_cut(texts: list[str], cuts: list[int], end: bytes) -> None:
    data = [text.encode() for text in texts]
    body = b"".join(b": comment" + end + b"data: " + one + end + end for one in data)
    chunks, at = [], 0
    for size in cuts:
        chunks.append(body[at : at + size])
        at += size
    assert fed([*chunks, body[at:]]) == data


def test_an_event_of_several_data_lines_is_one_event() -> None:
    assert fed([b"data: a\ndata: b\n\ndata:c"]) == [b"a\nb", b"c"]


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1_000)
    splitter = sse.EventSplitter()
    for _ in range(20):
        splitter.feed(b"x" * 50)
    with pytest.raises(sse.EventTooLong):
        splitter.feed(b"x")


def test_many_events_in_a_row_are_no_long_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1_000)
    splitter = sse.EventSplitter()
    assert sum(len(splitter.feed(b"data: " + b"x" * 100 + b"\n\n")) for _ in range(50)) == 50
