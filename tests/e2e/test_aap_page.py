"""Runs the commands of the documentation for application developers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sessions_app.aap.openapi.routes import routes
from tests.e2e.documentation_page import Reader, blocks, fits, value_fits
from tests.paths import ROOT

PAGE = ROOT / "docs" / "protocols" / "aap.md"
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on the PATH; Debian, Ubuntu: apt-get install curl")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


def test_commands_of_the_aap_page_have_the_documented_output(reader: Reader) -> None:
    wrong: list[str] = []
    for block in blocks(PAGE.read_text()):
        # The page may still speak of a version that is no longer there.
        if not {int(version) for version in re.findall(r"/aap/v(\d)", block.commands)} <= set(routes()):
            continue
        said = reader.follow(block)
        if block.shown and not fits(block, said):
            wrong.append(f"{PAGE.name}:{block.line}\n{block.commands}shows\n{block.shown}but the server said\n{said}\n")
    assert not wrong, "\n".join(wrong)
    assert reader.complaints.read_text() == ""


@pytest.mark.parametrize(
    ("shown", "said", "fit"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "…": "…"}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (["…", 3], [1, 2, 3], True),
        ([1, "…"], [1], True),
        (["…", 3], [1, 2], False),
        ("begins …", "begins here\nand there", True),
        ("begins …", "begun", False),
        ("sess_q3Zt0Yw8cJmR5xVbN1dLkA7p", "sess_9dLkA7pq3Zt0Yw8cJmR5xVbN", True),
        (1, True, False),
    ],
)
def test_fits_compares_output_with_the_documentation(shown: Any, said: Any, fit: bool) -> None:
    assert value_fits(shown, said) is fit


def test_every_block_of_the_aap_page_is_tested() -> None:
    page = PAGE.read_text()
    fences: Mapping[str, int] = {form: len(re.findall(rf"^```{form}$", page, re.MULTILINE)) for form in ("sh", "json", "text")}
    found = blocks(page)
    assert len(found) == fences["sh"]
    assert sum(bool(block.shown) for block in found) == fences["json"] + fences["text"]
    assert 2 * sum(fences.values()) == len(re.findall(r"^```", page, re.MULTILINE))


def test_the_page_is_linked_from_the_documentation_index() -> None:
    assert "(docs/protocols/aap.md)" in (ROOT / "README.md").read_text()
