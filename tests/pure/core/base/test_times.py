"""Times as texts."""

from sessions_app.core.base import times


def test_unix_times_are_texts_unless_they_are_beyond_the_calendar() -> None:
    assert times.text_of_unix(0) == "1970-01-01T00:00:00.000Z"
    assert times.text_of_unix(-1) == "1969-12-31T23:59:59.999Z"
    assert times.text_of_unix(1_763_600_000_123) == "2025-11-20T00:53:20.123Z"
    assert times.text_of_unix(2**60) is None
    assert times.text_of_unix(-(2**60)) is None
