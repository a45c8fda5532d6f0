"""Log lines: context ids, formats, masked secrets."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator

import pytest

from agenthost import observability
from sessions_app.core.base import log_context

KEY = "ah_" + "Q7" * 21 + "x"


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(observability.ContextFilter())
    handler.addFilter(observability.MaskingFilter())
    handler.setFormatter(observability.JsonFormatter())
    logger = logging.getLogger("tests.observability")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield logger, stream
    logger.removeHandler(handler)
    logger.propagate = True


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"key {KEY} was used", KEY),
        (f"Authorization: Bearer {KEY}", KEY),
        ("authorization: bearer sk-live-123", "sk-live-123"),
        ("BeArEr sk-live-123", "sk-live-123"),
        ("GET /x?token=hush&a=1", "hush"),
        ("GET /x?a=1&tkn=hush", "hush"),
        ("postgres://someone:hush@db/x", "hush"),
        ("redis://:hush@r:6379/0", "hush"),
    ],
)
def test_keys_and_tokens_are_masked(lines: tuple[logging.Logger, io.StringIO], text: str, gone: str) -> None:
    logger, stream = lines
    logger.info("%s", text)
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("it failed")
    assert gone not in stream.getvalue()
    assert "a=1" in stream.getvalue() or "a=1" not in text


def test_a_masked_key_can_still_be_found_by_its_prefix() -> None:
    assert observability.masked(KEY).startswith(KEY[:11])


@pytest.mark.parametrize("text", ["tokens=5", "max_tokens=100", "https://host/path?x=1", "12:30:00"])
def test_text_without_secrets_is_not_changed(text: str) -> None:
    assert observability.masked(text) == text


def test_log_lines_contain_the_ids_of_their_context(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = lines
    with log_context.about(request="req_1", tenant=7, session="sess_1", turn="turn_1"):
        logger.info("hello %s", "there")
    logger.info("bye")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["message"], first["level"], first["logger"]) == ("hello there", "INFO", "tests.observability")
    assert (first["request"], first["tenant"], first["session"], first["turn"]) == ("req_1", "7", "sess_1", "turn_1")
    assert "request" not in second


def test_log_arguments_that_do_not_match_the_format_lose_no_line(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = lines
    logger.info("%d turns", "many")
    assert "%d turns" in json.loads(stream.getvalue())["message"]


def test_readable_lines_contain_the_same_ids() -> None:
    record = logging.LogRecord("a.logger", logging.INFO, __file__, 1, "hello", None, None)
    with log_context.about(turn="turn_1"):
        observability.ContextFilter().filter(record)
    assert "a.logger: hello [turn=turn_1]" in observability.ReadableFormatter().format(record)


def test_repeated_refusals_of_the_consumer_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("agenthost.observability.time.monotonic", lambda: now)
    repeats = observability.RepeatsFilter()

    def written(text: str, *arguments: object) -> bool:
        return repeats.filter(logging.LogRecord("celery", logging.ERROR, __file__, 1, text, arguments, None))

    assert [written("refused: %s", number) for number in range(3)] == [True, False, False]
    assert written("another line")
    now += observability.RepeatsFilter.SECONDS
    assert written("refused: %s", 4)


def test_a_forked_process_adds_its_number(lines: tuple[logging.Logger, io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    logger, stream = lines
    logger.info("before")
    monkeypatch.setattr(observability, "_child", {})
    observability.set_child(2)
    logger.info("after")
    before, after = map(json.loads, stream.getvalue().splitlines())
    assert "child" not in before
    assert after["child"] == "2"


def test_a_line_with_text_that_is_not_unicode_is_still_written() -> None:
    # Made here: pytest-xdist cannot send a log line with this text to its main process.
    record = logging.LogRecord("tests", logging.INFO, "", 0, "path %s", ("/a\udcff",), None)
    line = observability.JsonFormatter().format(record)
    assert json.loads(line)["message"] == "path /a\udcff"
    line.encode()


def test_lines_have_the_pid_of_the_process_that_wrote_them(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = lines
    logger.info("here")
    assert json.loads(stream.getvalue())["pid"] == os.getpid()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        record = logger.makeRecord("tests", logging.INFO, "", 0, "there", (), None)
        os.write(writing, observability.JsonFormatter().format(record).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(reading, 1000))["pid"] == child
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("level", "number"), [(logging.INFO, 1), (logging.WARNING, 0)])
def test_the_line_of_a_request_is_masked_and_has_a_level(
    lines: tuple[logging.Logger, io.StringIO], level: int, number: int
) -> None:
    logger, stream = lines
    logger.setLevel(level)
    observability.log_cheaply(logger, "%s %d", f"/{KEY}", 200)
    found = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert found == [f"/{KEY[:11]}… 200"] * number
