"""The log lines of the supervisor of forked processes."""

from __future__ import annotations

import json
import logging

import pytest

from agenthost import observability, supervisor


def parent(*, json_lines: bool = True, level: int = logging.INFO) -> supervisor.Parent:
    return supervisor.Parent([], signal_pipe=(0, 1), listener=-1, interpreter=[], program=[], json_lines=json_lines, level=level)


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("agenthost.supervisor", logging.ERROR, "", 0, message, (), None)


def test_a_json_line_is_like_those_of_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    parent().log(supervisor.ERROR, 'child_ended "ü"\n', "a trace")
    line = capfd.readouterr().err
    mine, ours = json.loads(line), json.loads(observability.JsonFormatter().format(record('child_ended "ü"\n')))
    assert mine.pop("error") == "a trace"
    assert len(mine.pop("time")) == len(ours.pop("time"))
    assert mine == ours
    assert list(mine) == list(ours)
    assert "ü" in line
    assert line.count("\n") == 1


def test_a_readable_line_is_like_those_of_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    parent(json_lines=False).log(supervisor.ERROR, "child_ended")
    mine, ours = capfd.readouterr().err, observability.ReadableFormatter().format(record("child_ended"))
    # The time may be another second.
    assert mine.rstrip("\n")[8:] == ours[8:]
    assert len(mine) == len(ours) + 1


def test_lines_below_the_level_are_not_written(capfd: pytest.CaptureFixture[str]) -> None:
    parent(level=logging.WARNING).log(supervisor.INFO, "child_ended")
    assert capfd.readouterr().err == ""
