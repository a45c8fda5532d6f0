"""docs/client.md: every example runs and prints what the page shows, and the page names every exception and event."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

from agenthost import client as library
from tests.e2e.server import Server
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "client.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL)
BETWEEN = "--- the next example ---"


def test_every_example_prints_what_the_page_shows(hall: Server, tmp_path: Path) -> None:
    assert len(EXAMPLES) == PAGE.count("```python")
    program = f"print({BETWEEN!r})\n".join(code for code, _ in EXAMPLES)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "AGENTHOST_URL": hall.origin(),
        "AGENTHOST_KEY": hall.keys.alice,
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(f"{BETWEEN}\n") == [shown for _, shown in EXAMPLES]


def test_the_page_names_every_exception_and_event() -> None:
    errors = {name for name, value in vars(library).items() if inspect.isclass(value) and issubclass(value, Exception)}
    events = {each.__name__ for each in typing.get_args(library.Event)}
    assert {name for name in errors | events if f"`{name}" not in PAGE} == set()
