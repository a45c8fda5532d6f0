"""Words that must not stand in the project."""

from __future__ import annotations

import pytest

from ops import forbidden_text

# Put together here, or this file would break the rules it is about.
BAD = {
    "a registry host": "see https://{}.org/project".format("py" + "pi"),
    "an index": "pip install --extra-{} x".format("index" + "-url"),
    "a download address": '"{}": "https://example.test/x.tgz"'.format("res" + "olved"),
    "a home": "cd /{}/ada/agenthost".format("ho" + "me"),
    "root's home": "cat /{}/.netrc".format("ro" + "ot"),
    "this checkout": f"open {forbidden_text.ROOT}/manage.py",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD.keys())
def test_a_word_that_is_true_on_one_machine_only_is_found(line: str) -> None:
    assert forbidden_text.faults("page.md", f"first\n{line}\n")[0].startswith("page.md:2: ")


@pytest.mark.parametrize(
    "line", ["pip install --require-hashes -r x", "GET /sessions/root/task/1", "WORKDIR /app", "the page /home"]
)
def test_ordinary_words_are_left_alone(line: str) -> None:
    assert forbidden_text.faults("page.md", line) == []
