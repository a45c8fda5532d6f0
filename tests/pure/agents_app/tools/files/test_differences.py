"""Unified diffs: the same as the standard library's, but bounded."""

from __future__ import annotations

import difflib
import random
import time

from agents_app.tools.files.differences import compare, unified
from agents_app.tools.files.text import lines_of


def applied(before: str, diff: str) -> str:
    """The result of a unified diff."""
    old, out, at = lines_of(before), list[str](), 0
    for line in diff.split("\n")[2:]:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            out += old[at:first]
            at = first
        elif line.startswith("\\"):
            out[-1] = out[-1].removesuffix("\n")
        elif line.startswith("+"):
            out.append(line[1:] + "\n")
        else:
            assert old[at].rstrip("\n") == line[1:]
            if line.startswith(" "):
                out.append(old[at])
            at += 1
    return "".join(out + old[at:])


def test_a_diff_turns_the_old_text_into_the_new_one() -> None:
    chance = random.Random(7)
    for _ in range(300):
        old = [f"{chance.choice('abcd')}\n" for _ in range(chance.randrange(12))]
        new = [line for line in old if chance.random() > 0.3]
        for _ in range(chance.randrange(4)):
            new.insert(chance.randrange(len(new) + 1), f"{chance.choice('xyab')}\n")
        before, after = "".join(old), "".join(new)
        found = compare(before, after)
        diff = unified(found, "a")
        assert (applied(before, diff) if diff else before) == after
        marks = [line[0] for line in diff.split("\n")[2:] if line[:1] in ("+", "-")]
        assert (marks.count("+"), marks.count("-")) == (found.counts.added, found.counts.removed)
        assert found.counts.added - found.counts.removed == len(new) - len(old)


def test_hunks_are_those_of_the_standard_library() -> None:
    before = "".join(f"{n}\n" for n in range(60))
    after = before.replace("\n5\n", "\nfive\n").replace("\n11\n", "\n").replace("\n40\n", "\n40\nmore\n") + "end\n"
    expected = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "a", "a", lineterm=""))
    assert unified(compare(before, after), "a").split("\n") == expected


def test_a_text_that_is_rewritten_is_compared_in_bounded_time() -> None:
    before = "".join(f"{n % 7}\n" for n in range(40_000))
    after = "".join(f"{n % 11}\n" for n in range(40_000))
    began = time.process_time()
    found = compare(before, after)
    shown = unified(found, "a")
    assert time.process_time() - began < 5
    assert found.counts.removed > 39_000
    assert len(shown) < 17_000
    assert shown.split("\n")[-1].startswith("[the diff is longer: ")


def test_equal_texts_have_no_diff() -> None:
    assert unified(compare("a\n", "a\n"), "a") == ""
