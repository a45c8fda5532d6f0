"""Server tools as a run sees them: arguments checked, time and output bounded, insides kept inside."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from agents_app.errors import ToolFailed
from agents_app.fair.threads import FairPool
from agents_app.runtime.interface import Limits
from agents_app.runtime.messages import Content
from agents_app.spec import ToolSpec
from agents_app.tools.signature import describe
from agents_app.tools.source import resolve
from agents_app.tools.toolset import ServerTools
from tests.fakes import pictures

LIMITS = Limits(tool_seconds=90.0, tool_output_bytes=200)
PIXEL = {"type": "image", "url": pictures.PIXEL}

began, stopped = threading.Event(), threading.Event()


def add(a: int, b: int = 1, note: str | None = None) -> int:
    return a + b


def pick(kind: str, tags: list[int], weights: dict[str, float] | None = None) -> list[Any]:
    return [kind, tags, weights]


def give(what: str) -> Any:
    values: dict[str, Any] = {
        "text": "plain",
        "empty": "",
        "none": None,
        "numbers": {"big": 9007199254740993, "exact": 1.0, "umlaut": "ä"},
        "blocks": [{"type": "text", "text": "see"}, PIXEL],
        "almost blocks": [{"type": "image", "url": "http://plain.example/a.png"}],
        "no blocks": [],
        "bytes": b"\x00",
        "set": {1},
        "nan": float("nan"),
        "odd": "nul \x00 half \ud800 pair",
        "odd blocks": [{"type": "text", "text": "nul \x00"}],
        "long": "ä" * 500,
        "long json": ["x" * 500],
        "long blocks": [{"type": "text", "text": "x" * 150}, {"type": "text", "text": "y" * 150}, {"type": "text", "text": "z"}],
        "broken image": [{"type": "text", "text": "see"}, {"type": "image", "url": "data:image/png;base64,bm90IGFuIGltYWdl"}],
        "large image": [{"type": "image", "url": "data:image/png;base64," + "A" * 500}],
    }
    if what == "circle":
        circle: list[Any] = []
        circle.append(circle)
        return circle
    return values[what]


def endless() -> Iterator[str]:
    try:
        while True:
            yield "x" * 50
    finally:
        stopped.set()


async def endless_later() -> AsyncIterator[str]:
    while True:
        yield "y" * 50


async def later(text: str) -> str:
    await asyncio.sleep(0)
    return text


def wrapped(text: str) -> Any:
    return later(text)


async def hang() -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()


async def deaf() -> None:
    began.set()
    while not stopped.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


def block() -> None:
    began.set()
    stopped.wait(120)


def failing(how: str) -> None:
    if how == "value":
        raise ValueError("private words at /srv/insides.py")
    if how == "exit":
        raise SystemExit("private words")
    if how == "timeout":
        raise TimeoutError("private words")
    if how == "cancelled":
        raise asyncio.CancelledError
    raise ToolFailed("the harbour is closed")


async def failing_later(how: str) -> None:
    failing(how)


def tools(*names: str, **fields: Any) -> ServerTools:
    specs = []
    for name in names:
        source = f"python:{__name__}:{name}"
        specs.append(ToolSpec(name, source, parameters=describe(resolve(source))[1], **fields))
    return ServerTools(specs, FairPool(4), "tenant", LIMITS)


async def run(name: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Content:
    return await tools(name, **fields).run(name, arguments or {})


async def failure(name: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await run(name, arguments, **fields)
    return caught.value.reason


@pytest.fixture(autouse=True)
def _unstopped() -> Iterator[None]:
    began.clear()
    stopped.clear()
    yield
    stopped.set()


def test_a_set_knows_its_tools() -> None:
    own = tools("add", "later", idempotent=True)
    assert [schema.name for schema in own.schemas] == ["add", "later"]
    assert own.has("add")
    assert not own.has("hang")
    assert own.idempotent("add")
    assert not own.idempotent("hang")


@pytest.mark.rule("A75")
@pytest.mark.parametrize(
    ("what", "content"),
    [
        ("text", "plain"),
        ("empty", ""),
        ("none", "null"),
        ("numbers", '{"big":9007199254740993,"exact":1.0,"umlaut":"ä"}'),
        ("blocks", [{"type": "text", "text": "see"}, PIXEL]),
        ("almost blocks", '[{"type":"image","url":"http://plain.example/a.png"}]'),
        ("no blocks", "[]"),
    ],
)
async def test_text_stays_text_blocks_stay_blocks_and_the_rest_is_json(what: str, content: Content) -> None:
    assert await run("give", {"what": what}) == content


@pytest.mark.rule("A72")
@pytest.mark.parametrize("what", ["bytes", "set", "nan", "circle"])
async def test_what_has_no_json_form_fails_cleanly(what: str) -> None:
    assert await failure("give", {"what": what}) == "its result has no JSON form"


@pytest.mark.rule("A96")
async def test_characters_no_store_can_hold_are_replaced() -> None:
    assert await run("give", {"what": "odd"}) == "nul \ufffd half \ufffd pair"
    assert await run("give", {"what": "odd blocks"}) == [{"type": "text", "text": "nul \ufffd"}]


async def test_output_is_cut_at_its_limit_with_a_note() -> None:
    for what in ("long", "long json"):
        content = await run("give", {"what": what})
        assert isinstance(content, str)
        assert len(content.encode()) <= 200
        assert content.endswith("[cut after 200 bytes]")
    blocks = await run("give", {"what": "long blocks"})
    assert not isinstance(blocks, str)
    assert sum(len(block["text"]) for block in blocks) <= 200
    assert await failure("give", {"what": "large image"}) == "its result is larger than 200 bytes"


async def test_a_broken_image_fails_with_a_clear_word_and_reaches_no_model() -> None:
    reason = "its result holds an image that cannot be used: the image is broken: it does not begin like a PNG"
    assert await failure("give", {"what": "broken image"}) == reason


async def test_a_generator_is_read_no_further_than_the_limit() -> None:
    content = await run("endless")
    assert isinstance(content, str)
    assert content.startswith("xxxx")
    assert len(content) <= 200
    assert stopped.is_set()
    assert str(await run("endless_later")).startswith("yyyy")


async def test_coroutines_and_functions_that_return_one_are_awaited() -> None:
    assert await run("later", {"text": "soon"}) == "soon"
    assert await run("wrapped", {"text": "soon"}) == "soon"


@pytest.mark.rule("A97")
async def test_arguments_reach_the_function_as_the_schema_has_them() -> None:
    assert await run("add", {"a": 2**70, "b": 2.0, "note": None}) == str(2**70 + 2)
    assert await run("pick", {"kind": "k", "tags": [1, 2], "weights": {"x": 1}}) == '["k",[1,2],{"x":1}]'


@pytest.mark.rule("A72")
@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("add", {}, "the argument a is missing"),
        ("add", {"a": "1"}, "the argument a is not a whole number"),
        ("add", {"a": True}, "the argument a is not a whole number"),
        ("add", {"a": 1.5}, "the argument a is not a whole number"),
        ("add", {"a": None}, "the argument a is not a whole number"),
        ("add", {"a": 1, "c": 2}, "there is an argument the tool does not have"),
        ("add", {"a": 1, "note": 3}, "the argument note has the wrong type"),
        ("pick", {"kind": 3, "tags": []}, "the argument kind is not a string"),
        ("pick", {"kind": "k", "tags": {}}, "the argument tags is not a list"),
        ("pick", {"kind": "k", "tags": ["1"]}, "an item of the argument tags is not a whole number"),
    ],
)
async def test_arguments_that_do_not_fit_fail_before_the_tool_runs(name: str, arguments: dict[str, Any], reason: str) -> None:
    assert await failure(name, arguments) == reason


@pytest.mark.rule("A72")
@pytest.mark.parametrize("name", ["failing", "failing_later"])
@pytest.mark.parametrize("how", ["value", "exit", "timeout", "cancelled"])
async def test_an_error_shows_nothing_of_its_insides_anywhere(name: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert await failure(name, {"how": how}) == "the tool raised an error"
    assert "private words" not in caplog.text


async def test_the_log_says_where_a_tool_raised_and_what(caplog: pytest.LogCaptureFixture) -> None:
    await failure("failing", {"how": "value"})
    assert "ValueError" in caplog.text
    assert "test_toolset.py" in caplog.text


async def test_a_tool_may_say_itself_why_it_failed() -> None:
    assert await failure("failing", {"how": "itself"}) == "the harbour is closed"


@pytest.mark.rule("A72")
@pytest.mark.parametrize("name", ["hang", "block", "deaf"])
async def test_a_tool_out_of_time_fails_and_is_stopped_if_it_can_be(name: str) -> None:
    assert await failure(name, timeout=0.05) == "timed out after 0.05 s"
    if name == "hang":
        await asyncio.sleep(0)
        assert stopped.is_set()
    stopped.set()


@pytest.mark.parametrize("name", ["hang", "block", "deaf"])
async def test_a_cancelled_run_does_not_wait_for_its_tool(name: str) -> None:
    task = asyncio.create_task(run(name))
    async with asyncio.timeout(90):
        while not began.is_set():  # noqa: ASYNC110 - what is waited for may happen in a thread
            await asyncio.sleep(0.002)
    task.cancel()
    # The tool goes on, or hangs, until the end of the test.
    done, _ = await asyncio.wait({task}, timeout=30)
    stopped.set()
    assert done
    assert task.cancelled()


async def test_a_tool_whose_code_is_gone_fails_cleanly() -> None:
    own = ServerTools([ToolSpec("gone", "python:no_such_module_here:f")], FairPool(1), "tenant", LIMITS)
    with pytest.raises(ToolFailed) as caught:
        await own.run("gone", {})
    assert caught.value.reason == "the tool is not available"
