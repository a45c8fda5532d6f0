"""The examples of clients against a server that runs: text while it streams, tools, permissions, cut streams, errors."""

from __future__ import annotations

import re

import pytest

from tests.e2e.client_examples.conftest import COMPILED, Start
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.cutting_proxy import proxied
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text()
KINDS = ["java", "typescript", pytest.param("typescript-compiled", marks=pytest.mark.slow)]
WORDS = [f"word{number} " for number in range(30)]


@pytest.mark.parametrize("start", KINDS, indirect=True)
def test_a_chat_streams_runs_its_tool_asks_for_the_servers_and_survives_a_cut(
    start: Start, hall: Server, model: ModelServer
) -> None:
    prompt = model.script(
        [
            steps.text("At once"),
            steps.gate("seen"),
            steps.text(", and later.\n"),
            steps.call("look_up_order", {"number": "4711"}),
            steps.call("calculator", {"expression": "6*7"}),
        ],
        [steps.text(*WORDS[:9]), steps.gate("read"), steps.text(*WORDS[9:])],
    )
    with proxied(hall.ports[0]) as proxy:
        chat = start(proxy.origin, agent="pilot")
        chat.type(prompt)
        chat.answer.expect("At once")
        # The model has not finished: only now it continues.
        model.open_gate("seen")
        chat.notes.expect('Allow calculator {"expression":"6*7"}? [y/N] ')
        proxy.cut_within(b"word12 ")
        chat.type("y")
        # A client may lose what it has received and not read: it would send the turn again, and not resume it.
        chat.answer.expect(WORDS[8])
        model.open_gate("read")
        chat.answer.expect(WORDS[-1])
        assert chat.finish() == 0, chat.notes.text
        resumed = [head for head in proxy.heads if "/events/stream?stream=delta " in head.partition("\r\n")[0]]
    assert chat.answer.text == f"At once, and later.\n\n{''.join(WORDS)}\n"
    assert len(resumed) == 1
    assert "\r\nlast-event-id: " in resumed[0].lower()
    first, second = model.requests_of(prompt)
    assert {each["function"]["name"] for each in first.body["tools"]} >= {"look_up_order", "calculator"}
    results = [message["content"] for message in second.body["messages"] if message["role"] == "tool"]
    assert sorted(results) == ["42", "Order 4711: shipped yesterday"]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["java-source", "typescript-compiled"], indirect=True)
def test_permissions_are_granted_and_denied_as_the_page_shows(start: Start) -> None:
    ((typed, shown),) = re.findall(r"printf '(.*?)' \| .*\n```\n```text\n(.*?)```", PAGE, re.DOTALL)
    chat = start()
    for line in typed.split(r"\n")[:-1]:
        chat.type(line)
    assert chat.finish() == 0, chat.notes.text
    # The results come in the order in which the tools have finished.
    assert sorted(re.split(r"(?<=[.:]) |\n", chat.answer.text)) == sorted(re.split(r"(?<=[.:]) |\n", shown))
    assert '[the agent calls calculator {"expression":"6 * 7"}]' in chat.notes.text
    assert chat.notes.text.count("[result: Tool call denied: the user refused]") == 1


@pytest.mark.slow
@pytest.mark.parametrize("start", COMPILED, indirect=True)
def test_a_question_without_an_answer_is_a_denial(start: Start) -> None:
    chat = start()
    chat.type("What is 6*7?")
    assert chat.finish() == 0, chat.notes.text
    assert "You did not allow `calculator`, so it did not run." in chat.answer.text


@pytest.mark.slow
@pytest.mark.parametrize("start", COMPILED, indirect=True)
def test_a_failed_tool_is_a_result_and_the_chat_continues(start: Start, model: ModelServer) -> None:
    prompt = model.script(
        [steps.call("look_up_order", {"order": 1})],
        [steps.text("None, ")],
    )
    chat = start(agent="echo")
    chat.type(prompt)
    chat.type(model.script([steps.text("and again.")]))
    assert chat.finish() == 0, chat.notes.text
    (result,) = [each["content"] for each in model.requests_of(prompt)[1].body["messages"] if each["role"] == "tool"]
    assert result == "Tool execution failed: number: a string is needed"
    assert chat.answer.text == "\nNone, \nand again.\n"


@pytest.mark.slow
@pytest.mark.parametrize("start", COMPILED, indirect=True)
def test_a_turn_that_fails_names_its_stop_reason(start: Start, model: ModelServer) -> None:
    chat = start(agent="echo")
    chat.type(model.script([steps.text("Half"), steps.finish("length")]))
    chat.type(model.script([steps.text("Whole")]))
    assert chat.finish() == 0
    assert chat.answer.text == "Half\nWhole\n"
    assert chat.notes.text.count("[the turn ended with max_tokens]") == 1


@pytest.mark.slow
@pytest.mark.parametrize("start", COMPILED, indirect=True)
def test_a_wrong_key_is_a_clear_error(start: Start) -> None:
    chat = start(key="ah_wrong")
    assert chat.finish() == 1
    assert chat.notes.text.startswith("[401 Unauthorized: The key is not valid. (req_")
    assert chat.notes.text.count("\n") == 1
    assert "ah_wrong" not in chat.notes.text


@pytest.mark.slow
@pytest.mark.parametrize("start", COMPILED, indirect=True)
def test_an_agent_that_is_not_there_is_named(start: Start, hall: Server) -> None:
    chat = start(agent="nobody")
    assert chat.finish() == 1
    assert chat.notes.text == f"[{hall.origin()}/aap/v3 has no agent nobody for this key]\n"


def test_the_page_names_files_and_rules_that_exist() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path
    rules = (ROOT / "docs" / "rules" / "aap.md").read_text()
    named = set(re.findall(r"\bA\d+\b", PAGE))
    assert named
    assert {rule for rule in named if f"**{rule}. " not in rules} == set()
    assert "(docs/clients.md)" in (ROOT / "README.md").read_text()
