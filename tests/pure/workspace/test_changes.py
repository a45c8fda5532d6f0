"""Changes of files that wait to be reported."""

from __future__ import annotations

import pytest

from sessions_app.workspace.changes import MOST_BYTES, MOST_CHANGES, Changes, Kind

A = (b"a",)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["added", "updated"], "added"),
        (["added", "deleted"], None),
        (["added", "deleted", "added"], "added"),
        (["updated", "updated"], "updated"),
        (["updated", "deleted"], "deleted"),
        (["updated", "added"], "updated"),
        (["deleted", "added"], "updated"),
        (["deleted", "added", "deleted"], "deleted"),
    ],
)
def test_changes_of_a_file_are_merged(kinds: list[Kind], expected: Kind | None) -> None:
    changes = Changes()
    for kind in kinds:
        changes.add(A, kind)
    assert bool(changes) == (expected is not None)
    assert changes.take() == ({} if expected is None else {A: expected}, False)
    assert not changes


def test_what_does_not_fit_is_lost_as_a_whole_and_said() -> None:
    for names, count in ((b"%d", MOST_CHANGES + 1), (b"%d" + b"x" * 250, MOST_BYTES // 250)):
        changes = Changes()
        for number in range(count):
            changes.add((names % number,), "added")
        assert changes.lost
        changes.add(A, "updated")
        assert changes.take() == ({}, True)
        changes.add(A, "updated")
        assert changes.take() == ({A: "updated"}, False)


def test_files_that_come_and_go_take_no_room() -> None:
    changes = Changes()
    for number in range(10 * MOST_CHANGES):
        changes.add((b"%d" % number,), "added")
        changes.add((b"%d" % number,), "deleted")
    assert not changes
