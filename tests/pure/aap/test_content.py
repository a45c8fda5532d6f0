"""Messages, tools and options of clients, as both protocols check them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.aap.versions import v3_types
from sessions_app.core.base import content
from sessions_app.core.base.errors import Fault, InvalidInput
from tests.fakes import pictures

EVERY_IMAGE = ("http", "data")
PNG = pictures.PIXEL

HISTORY = content.shape(list[content.HistoryMessage])
TOOL_CONTENT = content.shape(content.Text | content.ToolBlocks)
CLIENT_TOOLS = content.shape(content.ClientTools)
TOOL_REFERENCES = content.shape(content.ToolReferences)
OPTIONS = content.shape(content.Options)


def seed_messages(value: Any, images: Collection[str]) -> Any:
    """A session's initial history, as a creation checks it."""
    return checked(content.read(HISTORY, value, ("messages",)), lambda messages: content.seed_faults(messages, images))


def result_content(value: Any, images: Collection[str], path: content.Path) -> Any:
    """A tool's result, as a turn checks it."""
    return checked(content.read(TOOL_CONTENT, value, path), lambda found: content.image_faults(found, images, path))


def client_tools(value: Any) -> Any:
    return content.read(CLIENT_TOOLS, value, ("tools",))


def tool_refs(value: Any) -> Any:
    return content.read(TOOL_REFERENCES, value, ("agent", "tools"))


def options(value: Any) -> Any:
    return content.read(OPTIONS, value, ("agent", "options"))


def checked(value: Any, check: Callable[[Any], list[Fault]]) -> Any:
    if found := check(value):
        raise InvalidInput(found)
    return value


# --- values that are fine ---

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
said = words.filter(lambda text: text.strip() != "")
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(words, children, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(words, values, max_size=4)
images = st.sampled_from([PNG, "https://example.org/a.png?b=1#c"]).map(lambda url: {"type": "image", "url": url})
texts = words.map(lambda text: {"type": "text", "text": text})
thoughts = words.map(lambda text: {"type": "thinking", "thinking": text})
results = words | st.lists(texts | images, max_size=4)
user_contents = said | st.lists(texts | images, max_size=3).map(lambda blocks: [*blocks, {"type": "text", "text": "x"}])


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Any history of version 3 that keeps the rules: results follow their calls, each at most once."""
    lines: list[dict[str, Any]] = []
    unanswered: list[str] = []
    made = 0
    for kind in draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=8)):
        if kind == "system":
            lines.append({"role": "system", "content": draw(words)})
        elif kind == "user":
            lines.append({"role": "user", "content": draw(user_contents)})
        elif kind == "assistant":
            blocks: list[dict[str, Any]] = draw(st.lists(texts | thoughts | images, max_size=2))
            for _ in range(draw(st.integers(0, 2))):
                made += 1
                unanswered.append(f"call {made}")
                blocks.append({"type": "tool_use", "toolCallId": f"call {made}", "name": draw(words), "input": draw(objects)})
            lines.append({"role": "assistant", "content": blocks if blocks else draw(words)})
        elif unanswered:
            lines.append({"role": "tool", "toolCallId": unanswered.pop(0), "content": draw(results)})
    return lines


@pytest.mark.rule("A10", "A11", "A27", "A97")
@given(histories())
def test_an_initial_history_is_stored_as_it_was_sent(seed: list[dict[str, Any]]) -> None:
    stored = seed_messages(seed, EVERY_IMAGE)
    assert exact_json.dumps(exact_json.loads(exact_json.dumps(stored))) == exact_json.dumps(seed)


anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=12,
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "tool_permission", "critic"])
block_like = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "thinking", "tool_use", "image", "audio"]) | anything,
        "text": anything,
        "thinking": anything,
        "toolCallId": anything,
        "name": anything,
        "input": anything,
        "url": anything | st.just(PNG),
    },
)
message_like = st.fixed_dictionaries(
    {}, optional={"role": roles | anything, "content": anything | st.lists(block_like | anything), "toolCallId": anything}
)
tool_like = st.fixed_dictionaries(
    {}, optional={"name": anything, "title": anything, "description": anything, "parameters": anything, "trust": anything}
)
odd = anything | st.lists(message_like | tool_like | block_like, max_size=4)


@pytest.mark.rule("A4")
@pytest.mark.parametrize(
    "check",
    [
        lambda value: seed_messages(value, EVERY_IMAGE),
        lambda value: content.user_content(value, (), ("messages", 0, "content")),
        lambda value: result_content(value, (), ("messages", 0, "content")),
        client_tools,
        tool_refs,
        options,
    ],
    ids=["seed", "user", "result", "tools", "references", "options"],
)
@given(value=odd)
def test_any_value_is_refused_or_read_in_a_form_that_can_be_stored(check: Callable[[Any], Any], value: Any) -> None:
    try:
        taken = check(value)
    except InvalidInput as error:
        refused = error.faults
    else:
        exact_json.dumps(taken).encode()
        assert content.unstorable(taken, ()) == []
        return
    assert refused


def faults(check: Callable[..., Any], *args: Any) -> list[tuple[str | int, ...]]:
    with pytest.raises(InvalidInput) as caught:
        check(*args)
    return [fault.path for fault in caught.value.faults]


# --- messages ---


@pytest.mark.rule("A94")
def test_unknown_members_are_dropped_at_every_level() -> None:
    call = {"type": "tool_use", "name": "t", "mood": 1, "input": {"b": 1, "a": None}, "toolCallId": "c", "cache": {}}
    seed = [{"id": 7, "role": "assistant", "content": [call]}, {"role": "tool", "content": "", "toolCallId": "c", "x": 1}]
    assert seed_messages(seed, ()) == [
        {"role": "assistant", "content": [{"type": "tool_use", "name": "t", "input": {"b": 1, "a": None}, "toolCallId": "c"}]},
        {"role": "tool", "content": "", "toolCallId": "c"},
    ]


@pytest.mark.rule("A13", "A28")
@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "tool_permission", "toolCallId": "c", "granted": True}, ("role",)),
        ({"role": "critic", "content": "x"}, ("role",)),
        ({"role": ["user"], "content": "x"}, ("role",)),
        ({"content": "x"}, ("role",)),
        ("hello", ()),
        ({"role": "system", "content": [{"type": "text", "text": "x"}]}, ("content",)),
        ({"role": "system"}, ("content",)),
        ({"role": "user", "content": 7}, ("content",)),
        ({"role": "user", "content": None}, ("content",)),
        ({"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}, ("content", 0, "type")),
        ({"role": "assistant", "content": [{"type": "video"}]}, ("content", 0, "type")),
        ({"role": "assistant", "content": ["x"]}, ("content", 0)),
        ({"role": "assistant", "content": [{"type": "text", "text": 1}]}, ("content", 0, "text")),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "c", "name": "t", "input": "{}"}]},
            ("content", 0, "input"),
        ),
        ({"role": "tool", "content": "x"}, ("toolCallId",)),
    ],
)
def test_a_message_of_the_wrong_shape_is_refused_at_its_path(message: Any, place: tuple[str | int, ...]) -> None:
    assert faults(seed_messages, [{"role": "user", "content": "x"}, message], EVERY_IMAGE) == [("messages", 1, *place)]


@pytest.mark.rule("A7")
def test_every_fault_of_an_initial_history_is_reported() -> None:
    seed = [{"role": "user", "content": ""}, {"role": "tool", "toolCallId": "c", "content": 1}, {"role": "user", "content": []}]
    assert faults(seed_messages, seed, ()) == [
        ("messages", 0, "content"),
        ("messages", 1, "content"),
        ("messages", 2, "content"),
    ]


def _calling(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "toolCallId": call, "name": "t", "input": {}} for call in ids]
    return {"role": "assistant", "content": blocks}


def _result(call: str) -> dict[str, Any]:
    return {"role": "tool", "toolCallId": call, "content": "done"}


@pytest.mark.rule("A90")
def test_a_result_without_a_call_or_a_second_result_is_refused() -> None:
    assert faults(seed_messages, [_result("a"), _calling("a")], ()) == [("messages", 0, "toolCallId")]
    assert faults(seed_messages, [_calling("a"), _result("a"), _result("a")], ()) == [("messages", 2, "toolCallId")]


@pytest.mark.rule("A74")
def test_a_call_id_belongs_to_one_call() -> None:
    seed = [_calling("a", "a"), _result("a"), _calling("a")]
    assert faults(seed_messages, seed, ()) == [
        ("messages", 0, "content", 1, "toolCallId"),
        ("messages", 2, "content", 0, "toolCallId"),
    ]


@pytest.mark.rule("A90")
def test_open_calls_in_the_middle_or_at_the_end_are_taken() -> None:
    seed = [_calling("a", "b"), {"role": "user", "content": "never mind"}, _calling("c"), _result("b")]
    assert seed_messages(seed, ()) == seed


@pytest.mark.rule("A93")
def test_a_seed_of_ten_thousand_messages_is_fine() -> None:
    assert len(seed_messages([{"role": "user", "content": "hello"}] * 10_000, ())) == 10_000


@pytest.mark.rule("A89")
@pytest.mark.parametrize("empty", ["", " \n\t\u2003", [], [{"type": "text", "text": "  "}, {"type": "text", "text": ""}]])
def test_an_empty_user_message_is_refused(empty: Any) -> None:
    assert faults(content.user_content, empty, EVERY_IMAGE, ("messages", 0, "content")) == [("messages", 0, "content")]


@pytest.mark.rule("A89")
def test_an_image_alone_is_a_message_and_a_tool_result_may_be_empty() -> None:
    image = [{"type": "image", "url": PNG}]
    assert content.user_content(image, EVERY_IMAGE, ()) == image
    assert result_content("", (), ()) == ""
    assert result_content([], (), ()) == []


@pytest.mark.rule("A88")
@pytest.mark.parametrize(
    ("url", "images"),
    [
        ("https://example.org/a.png", ("data",)),
        (PNG, ("http",)),
        ("http://example.org/a.png", EVERY_IMAGE),
        ("file:///etc/passwd", EVERY_IMAGE),
        ("javascript:alert(1)", EVERY_IMAGE),
        ("https://", EVERY_IMAGE),
        ("https://exa mple.org/", EVERY_IMAGE),
        ("data:image/png;base64,", EVERY_IMAGE),
        ("data:image/png;base64,a", EVERY_IMAGE),
        ("data:image/png;base64,%%%%", EVERY_IMAGE),
        ("data:image/png;base64,äöü", EVERY_IMAGE),
        ("data:image/png,abc", EVERY_IMAGE),
        ("data:text/html;base64,YWJj", EVERY_IMAGE),
        ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==", EVERY_IMAGE),
        ("data:image/png;base64,bm90IGFuIGltYWdl", EVERY_IMAGE),
        ("data:image/svg+xml;base64,PHN2Zy8+", EVERY_IMAGE),
        (pictures.data_url(pictures.png()[:-5]), EVERY_IMAGE),
        (pictures.data_url(pictures.png(9_000, 1)), EVERY_IMAGE),
        (pictures.data_url(pictures.gif(), "image/png"), EVERY_IMAGE),
    ],
)
def test_an_image_the_agent_does_not_take_is_refused_at_its_block(url: str, images: tuple[str, ...]) -> None:
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "url": url}]
    assert faults(content.user_content, blocks, images, ("messages", 0, "content")) == [("messages", 0, "content", 1)]
    assert faults(result_content, blocks, images, ("messages", 0, "content")) == [("messages", 0, "content", 1)]
    assert faults(seed_messages, [{"role": "user", "content": blocks}], images) == [("messages", 0, "content", 1)]


@pytest.mark.rule("A96")
@pytest.mark.parametrize("bad", ["a\0b", "\ud83d", "\udc00x"])
def test_characters_that_cannot_be_stored_are_refused_at_their_path(bad: str) -> None:
    assert faults(content.user_content, bad, (), ("c",)) == [("c",)]
    assert faults(content.user_content, [{"type": "text", "text": bad}], (), ("c",)) == [("c", 0, "text")]
    assert faults(options, {"o": bad}) == [("agent", "options", "o")]
    tool = {"name": "t", "description": "", "parameters": {"enum": ["fine", bad]}}
    assert faults(client_tools, [tool]) == [("tools", 0, "parameters", "enum", 1)]
    assert faults(client_tools, [{**tool, "parameters": {bad: 1}}]) == [("tools", 0, "parameters", bad)]


# --- tools, references, options ---

TOOL = {"name": "t", "description": "", "parameters": {}}


@pytest.mark.rule("A15", "A94")
def test_a_tool_keeps_its_schema_and_order_and_loses_unknown_members() -> None:
    schema = {"type": "object", "zeta": {"x-own": None}, "alpha": 1.0}
    tools = client_tools([{"parameters": schema, "strict": True, "name": "T-1_x", "title": None, "description": "d"}])
    assert exact_json.dumps(tools) == exact_json.dumps([{"parameters": schema, "name": "T-1_x", "description": "d"}])


@pytest.mark.rule("A15")
def test_a_list_of_tools_has_a_limit_in_bytes() -> None:
    tools = [{**TOOL, "name": f"t{number}", "description": "x" * 50_000} for number in range(10)]
    assert len(client_tools(tools)) == 10
    assert faults(client_tools, [*tools, {**TOOL, "description": "x" * 50_000}]) == [("tools",)]


@pytest.mark.rule("A15", "A82")
@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"name": ""}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"name": "two words"}, "name"),
        ({"name": "naïve"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": None}, "name"),
        ({"name": "other"}, "name"),
        ({"title": 1}, "title"),
        ({"description": None}, "description"),
        ({"parameters": []}, "parameters"),
        ({"parameters": None}, "parameters"),
    ],
)
def test_a_tool_of_the_wrong_shape_or_with_a_repeated_name_is_refused(change: dict[str, Any], member: str) -> None:
    assert faults(client_tools, [{**TOOL, "name": "other"}, {**TOOL, **change}]) == [("tools", 1, member)]


@pytest.mark.rule("A15")
def test_a_tool_without_this_versions_field_is_refused() -> None:
    old = {"name": "t", "description": "", "inputSchema": {}}
    assert faults(client_tools, [old]) == [("tools", 0, "parameters")]


@pytest.mark.rule("A16", "A82", "A94")
def test_a_tool_reference_has_a_name_and_optional_trust() -> None:
    assert tool_refs([{"name": "a", "trust": True}, {"trust": None, "name": "b", "x": 1}]) == [
        {"name": "a", "trust": True},
        {"name": "b"},
    ]
    assert faults(tool_refs, [{"name": "a"}, {"name": "a"}, {"trust": True}, {"name": "c", "trust": 1}, "d"]) == [
        ("agent", "tools", 1, "name"),
        ("agent", "tools", 2, "name"),
        ("agent", "tools", 3, "trust"),
        ("agent", "tools", 4),
    ]


@pytest.mark.rule("A17", "A83")
def test_option_values_are_strings() -> None:
    assert options({"z": "", "a": "1"}) == {"z": "", "a": "1"}
    assert faults(options, {"n": 1, "b": True, "s": "fine", "o": None}) == [
        ("agent", "options", "n"),
        ("agent", "options", "b"),
        ("agent", "options", "o"),
    ]
    assert faults(options, ["a"]) == [("agent", "options")]


def test_null_lists_count_as_left_out() -> None:
    body = {"agent": {"name": "a", "tools": None, "options": None}, "tools": None, "messages": None}
    assert v3_types.NEW_SESSION.read(body) == {"agent": {"name": "a"}}
