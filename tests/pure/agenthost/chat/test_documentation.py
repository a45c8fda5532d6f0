"""docs/chat.md lists all arguments, commands and exit codes of the chat."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from agenthost.chat import command, local_tools
from agenthost.chat.chat import COMMANDS
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "chat.md").read_text()


def test_every_argument_is_on_the_page_and_no_other() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    command.add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) == flags | {"--tenant"}


def test_every_command_is_on_the_page_and_no_other() -> None:
    written = set(re.findall(r"`/([a-z]+)(?=[` ])", PAGE))
    # Two more names for the same, and what is typed where no command is.
    assert written - {"detach", "deny"} == COMMANDS.keys() - {"option", "exit"}


def test_every_exit_code_of_the_help_is_on_the_page() -> None:
    codes = dict(re.findall(r"^  (\d+)  (.+)$", command.EXIT_CODES, re.MULTILINE))
    table = dict(re.findall(r"^\| (\d+) \| ([^|;]+)", PAGE, re.MULTILINE))
    assert {code: text for code, text in table.items() if code != "141"}.keys() == codes.keys()
    assert all(table[code].strip() == text for code, text in codes.items())


def test_the_documented_tool_has_the_documented_schema(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    (tmp_path / "harbour_of_the_page.py").write_text(found[1])
    (tool,) = local_tools.from_module(str(tmp_path / "harbour_of_the_page.py"))
    assert tool.specification == {
        "name": "berth_of",
        "description": "Finds the berth of a ship.",
        "parameters": {
            "type": "object",
            "properties": {
                "ship": {"type": "string", "description": "its name"},
                "unit": {"type": "string", "enum": ["m", "ft"], "default": "m"},
            },
            "required": ["ship"],
            "additionalProperties": False,
        },
    }
