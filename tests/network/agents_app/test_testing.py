"""What an agent's author tests with: no server, no settings, no model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent

from agents_app.errors import AgentsFileError, ToolFailed
from agents_app.runtime.interface import Opaque, Usage
from agents_app.runtime.messages import text_of
from agents_app.testing import (
    Conversation,
    OutOfScript,
    Recording,
    RecordingMismatch,
    Script,
    call,
    fail,
    finish,
    load,
    pause,
    run,
    thinking,
    usage,
)
from tests.fakes import python_agents as fakes
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

AGENT = """
[[agents]]
name = "harbour"
model = "openai-chat:m"
api_key = "sk-of-the-operator"
instructions = "Answer in {language}."
client_tools = true
max_steps = 4
[[agents.options]]
type = "text"
name = "language"
default = "English"
[[agents.options]]
type = "secret"
name = "pin"
[[agents.tools]]
builtin = "calculator"
[[agents.tools]]
builtin = "ask_user"
expose = false
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agents.toml"
    path.write_text(AGENT)
    return path


def test_a_turn_has_texts_thinking_calls_requests_usage_and_end(file: Path) -> None:
    script = Script(
        [thinking("sums "), "Let me see. ", call("calculator", expression="6*7"), usage(10, 5)],
        ["It is ", "42.", usage(20, 3, 8)],
    )
    turn = run(file, "What is 6*7?", model=script, options={"language": "Welsh"})
    assert turn.end == "end_turn"
    assert turn.texts == ["Let me see. ", "It is 42."]
    assert turn.text == "It is 42."
    assert turn.thinking == "sums "
    assert turn.usage == Usage(30, 8, 8)
    called = turn.call("calculator")
    assert (called.arguments, called.text, called.by, called.asked) == ({"expression": "6*7"}, "42", "server", True)
    first, second = turn.requests
    assert first.instructions == "Answer in Welsh."
    assert [tool.name for tool in first.tools] == ["calculator", "ask_user"]
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert script.is_over
    assert script.closed == 2


def test_a_conversation_remembers_its_turns(file: Path) -> None:
    def answer(request: Any) -> str:
        return f"{sum(message.role == 'user' for message in request.messages)} said"

    talk = Conversation(file, model=Script(answer, answer))
    assert [talk.say("a").text, talk.say("b").text] == ["1 said", "2 said"]
    assert [text_of(message.content) for message in talk.messages] == ["a", "1 said", "b", "2 said"]
    assert repr(talk) == "<Conversation with harbour, 2 turns>"


@pytest.mark.parametrize(
    ("permit", "result", "denied"),
    [
        (True, "2", False),
        (False, "Tool call denied", True),
        (lambda name, arguments: "too dear" if "1" in arguments["expression"] else True, "Tool call denied: too dear", True),
    ],
)
def test_permissions_are_what_the_test_says(permit: Any, result: str, denied: bool, file: Path) -> None:
    turn = run(file, "x", model=Script(call("calculator", expression="1+1"), "ok"), permit=permit)
    assert (turn.call("calculator").text, turn.call("calculator").denied) == (result, denied)


def test_a_call_that_nobody_decides_on_leaves_the_turn_waiting(file: Path) -> None:
    turn = run(file, "x", model=Script(call("calculator", expression="1+1")), permit=lambda name, arguments: None)
    assert turn.end == "waiting"
    assert [each.name for each in turn.open] == ["calculator"]


def test_client_tools_are_answered_by_functions(file: Path) -> None:
    async def open_page(address: str) -> Mapping[str, str]:
        """Opens a page.

        Args:
            address: which one
        """
        return {"shown": address}

    turn = run(file, "x", model=Script(call("open_page", address="/"), "ok"), client_tools={"open_page": open_page})
    assert (turn.call("open_page").text, turn.call("open_page").by) == ('{"shown":"/"}', "client")
    schema = turn.requests[0].tools[-1]
    assert (schema.name, schema.description) == ("open_page", "Opens a page.")


def test_a_function_stands_in_for_a_tool_of_the_agent(file: Path) -> None:
    turn = run(
        file, "x", model=Script(call("calculator", expression="1+1"), "ok"), stand_ins={"calculator": lambda expression: 3}
    )
    assert turn.call("calculator").text == "3"
    with pytest.raises(ValueError, match="the agent has no tools abacus to replace"):
        run(file, "x", model=Script("ok"), stand_ins={"abacus": lambda: 3})


def test_functions_stand_in_for_what_an_mcp_server_would_offer(tmp_path: Path) -> None:
    async def find_light(name: str) -> list[str]:
        """Finds a light."""
        if name == "none":
            raise ToolFailed("there is no such light")
        return [name]

    path = tmp_path / "agents.toml"
    path.write_text(
        '[[agents]]\nname = "a"\nmodel = "openai-chat:m"\n[[agents.mcp]]\nname = "charts"\nurl = "https://mcp.example.org/"'
    )
    script = Script([call("find_light", name="Ayle"), call("find_light", name="none"), call("find_light")], "ok")
    turn = run(path, "x", model=script, stand_ins={"find_light": find_light})
    assert [tool.name for tool in turn.requests[0].tools] == ["find_light"]
    assert [each.text for each in turn.calls] == [
        '["Ayle"]',
        "Tool execution failed: there is no such light",
        "Tool execution failed: the argument name is missing",
    ]


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"when": "noon", "other": 1}, '{"when":"noon"}'),
        (lambda form: {"when": form["questions"][0]["message"]}, '{"when":"When?"}'),
        (lambda form: None, "The user declined to answer."),
    ],
)
def test_forms_are_filled_by_the_test(answers: Any, text: str, file: Path) -> None:
    question = {"id": "when", "kind": "text", "message": "When?"}
    turn = run(file, "x", model=Script(call("ask_user", questions=[question]), "ok"), answers=answers)
    assert turn.call("ask_user").text == text
    assert run(file, "x", model=Script(call("ask_user", questions=[question]))).end == "waiting"


def test_a_conversation_over_the_limit_is_shortened_as_on_the_server(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text('[[agents]]\nname = "a"\nmodel = "openai-chat:m"\ncontext_tokens = 50')
    talk = Conversation(path, model=Script("x" * 100, "ok"))
    talk.say("first " * 20)
    turn = talk.say("second")
    assert [text_of(message.content) for message in turn.requests[0].messages] == ["second"]


@pytest.mark.parametrize(
    ("step", "end", "error"),
    [
        (["half", fail("unavailable")], "error", "provider_failed"),
        ([fail("context_too_long")], "max_tokens", ""),
        (["No.", finish("refusal")], "refusal", ""),
    ],
)
def test_a_turn_ends_as_its_model_makes_it_end(step: Any, end: str, error: str, file: Path) -> None:
    turn = run(file, "x", model=Script(step))
    assert (turn.end, turn.error) == (end, error)


def test_steps_and_time_are_bounded_as_on_the_server(file: Path, tmp_path: Path) -> None:
    turn = run(file, "x", model=Script(*[call("calculator", expression="1")] * 4))
    assert (turn.end, turn.error) == ("error", "too_many_steps")
    path = tmp_path / "slow.toml"
    path.write_text('[[agents]]\nname = "a"\nmodel = "openai-chat:m"\nlimits = { run = 0.01 }')
    turn = run(path, "x", model=Script([pause(60), "never"]))
    assert (turn.end, turn.error, turn.failure) == ("error", "limit", "the turn ran longer than limits.run (0.01 s)")


def test_a_script_that_is_too_short_fails_the_test(file: Path) -> None:
    with pytest.raises(OutOfScript, match="the script has 1 steps, and the model is asked for the 2th time"):
        run(file, "x", model=Script(call("calculator", expression="1")))


def test_what_a_model_gets_wrong_is_played_too(file: Path) -> None:
    turn = run(file, "x", model=Script([call("calculator", "not json"), call("nowhere"), call("calculator", {"x y": 1})], "ok"))
    assert [(each.by, each.failed, each.arguments) for each in turn.calls] == [
        ("nobody", True, {}),
        ("nobody", True, {}),
        ("server", True, {"x y": 1}),
    ]


def test_a_turn_is_shown_so_that_a_failed_assertion_explains_itself(file: Path) -> None:
    turn = run(file, "x", model=Script([call("calculator", expression="1+1"), usage(2, 1)], "Two."))
    assert repr(turn) == (
        "<Turn\n  end='end_turn'\n  <calculator(expression='1+1') by server: '2'>\n  text='Two.'\n"
        "  2 model calls, 2 tokens in, 1 out\n>"
    )
    with pytest.raises(AssertionError, match="sum was called 0 times"):
        turn.call("sum")


def test_the_agents_own_model_is_asked_where_the_test_gives_none() -> None:
    turn = run("tests.fakes.python_agents:Counter", "21", options={"pin": "1234"})
    assert (turn.text, turn.call("double").text) == ("42, for the 1th time", "42")
    talk = Conversation(fakes.Counter)
    assert [talk.say("1").text, talk.say("2").text] == ["2, for the 1th time", "4, for the 2th time"]
    assert run(fakes.on_a_model, "x", tools=[]).text == "said by the model"


def test_an_agent_in_python_gets_the_options_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(
        '[[agents]]\nname = "a"\npython = "tests.fakes.python_agents:Mirror"\n[[agents.options]]\ntype = "text"\nname = "tone"'
    )
    assert run(path, "x", options={"tone": "warm"}).text == "|{'tone': 'warm'}|{}|[]|1"


def test_an_id_that_a_model_uses_again_is_another_call(file: Path) -> None:
    again = call("calculator", expression="1+1", call_id="c")
    talk = Conversation(file, model=Script(again, "ok", again, "ok"))
    ids = [talk.say("x").calls[0].id, talk.say("y").calls[0].id]
    assert ids[0] == "c"
    assert len(set(ids)) == 2


def test_an_agent_is_a_file_a_reference_an_object_or_what_was_loaded(file: Path) -> None:
    for agent in (file, str(file), load(file)):
        assert run(agent, "x", model=Script("ok")).text == "ok"
    assert load("tests.fakes.python_agents:plain").name == "plain"
    assert load(fakes.plain).name == "plain"
    assert load(fakes.Mirror).name == "Mirror"
    nowhere = Agent("openai-chat:m", defer_model_check=True)
    with pytest.raises(ValueError, match="is not a variable of a module"):
        load(nowhere)


def test_one_of_several_agents_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text("".join(f'[[agents]]\nname = "{name}"\nmodel = "openai-chat:m"\n' for name in "ab"))
    assert load(path, "b").name == "b"
    with pytest.raises(ValueError, match="has the agents a, b: choose one with name="):
        load(path)


def test_a_broken_file_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text('[[agents]]\nname = "a"\nmodel = "nobody:m"')
    with pytest.raises(AgentsFileError, match="there is no provider 'nobody'"):
        run(path, "x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"options": {"nothing": "x"}}, "option nothing: The agent has no option of this name"),
        ({"tools": ["nothing"]}, "the agent has no tools nothing to enable; it has calculator"),
    ],
)
def test_what_no_client_could_set_is_refused(given: Any, words: str, file: Path) -> None:
    with pytest.raises(ValueError, match=words):
        run(file, "x", model=Script("ok"), **given)


def test_client_tools_of_an_agent_that_takes_none_are_refused() -> None:
    with pytest.raises(ValueError, match="set client_tools = true"):
        run(fakes.Mirror, "x", client_tools={"double": fakes.double})


def test_tools_that_a_session_does_not_enable_are_not_offered(file: Path) -> None:
    turn = run(file, "x", model=Script("ok"), tools=[])
    assert [tool.name for tool in turn.requests[0].tools] == ["ask_user"]


def test_all_turns_of_a_process_are_played_in_one_loop_where_clients_stay_alive(file: Path) -> None:
    loops: set[int] = set()

    async def look(expression: str) -> str:
        loops.add(id(asyncio.get_running_loop()))
        return expression

    for _ in range(2):
        looks = call("calculator", expression="1")
        talk = Conversation(file, model=Script(looks, "ok", looks, "ok"), stand_ins={"calculator": look})
        talk.say("x")
        talk.say("y")
    assert len(loops) == 1


def test_what_a_turn_leaves_behind_does_not_go_on_in_the_next(file: Path) -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("first")

    async def leave(expression: str) -> str:
        tasks.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)
        return expression

    tasks: list[asyncio.Task[None]] = []
    run(file, "x", model=Script(call("calculator", expression="1"), "ok"), stand_ins={"calculator": leave})
    assert ended == ["first"]


def test_a_turn_inside_of_a_turn_is_refused_instead_of_waiting_for_ever(file: Path) -> None:
    def again(expression: str) -> str:
        return run(file, "y", model=Script("inner")).text

    with pytest.raises(RuntimeError, match="an agent's test run cannot start another one"):
        run(file, "x", model=Script(call("calculator", expression="1"), "ok"), stand_ins={"calculator": again})


async def test_a_turn_is_played_inside_of_a_running_loop_too(file: Path) -> None:
    assert asyncio.get_running_loop().is_running()
    assert run(file, "x", model=Script("ok")).text == "ok"
    with pytest.raises(OutOfScript):
        run(file, "x", model=Script())


# --- recordings ---


def test_a_recording_says_again_what_the_model_said(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "made" / "sum.json"
    step: Any = [
        thinking("sums"),
        Opaque("item", {"n": 1}),
        "Let ",
        "me see. ",
        call("calculator", expression="6*7"),
        usage(10, 5),
    ]
    original = recorded(file, path, Script(step, "It is 42."))
    again = run(file, "What is 6*7?", model=Recording(path), options={"pin": "hunter2"})
    assert (again.texts, again.thinking, again.usage) == (original.texts, original.thinking, original.usage)
    assert [(each.name, each.arguments, each.text) for each in again.calls] == [("calculator", {"expression": "6*7"}, "42")]
    assert again.history[1].provider_data == original.history[1].provider_data
    assert [message.content for message in again.history] == [message.content for message in original.history]


def recorded(file: Path, path: Path, script: Script, message: str = "What is 6*7?") -> Any:
    """As if the agent's own model had said it."""
    recording = Recording(path, record=True)
    conversation = Conversation(file, model=recording, options={"pin": "hunter2"})
    speaker = recording.speaker
    recording.speaker = lambda model, secrets: speaker(script, secrets)  # type: ignore[method-assign]
    return conversation.say(message)


def test_no_secret_is_recorded(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    recorded(file, path, Script("The pin is hunter2, the key sk-of-the-operator."), "Is hunter2 my pin?")
    text = path.read_text()
    assert "hunter2" not in text
    assert "sk-of-the-operator" not in text
    assert "The pin is ***, the key ***." in text
    # And yet the same question is the same question.
    assert run(file, "Is hunter2 my pin?", model=Recording(path), options={"pin": "hunter2"}).text.startswith("The pin is ***")


def test_a_real_model_is_recorded_over_the_wire_with_the_key_that_the_test_has(tmp_path: Path) -> None:
    file, path = tmp_path / "agents.toml", tmp_path / "wire.json"
    with ModelServer() as model:
        file.write_text(f'[[agents]]\nname = "a"\nmodel = "openai-chat:m"\nbase_url = "{model.url}"\n')
        name = model.script([steps.text("Your key is ", "sk-of-the-author.")])
        turn = run(file, name, model=Recording(path, record=True), api_key="sk-of-the-author")
        assert [request.headers["authorization"] for request in model.requests] == ["Bearer sk-of-the-author"]
    assert turn.text == "Your key is sk-of-the-author."
    assert "sk-of-the-author" not in repr(turn.requests)
    assert "sk-of-the-author" not in path.read_text()
    assert run(file, name, model=Recording(path)).text == "Your key is ***."


def test_a_failure_is_recorded_and_replayed(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "failed.json"
    assert recorded(file, path, Script(["half", fail("unavailable")])).error == "provider_failed"
    again = run(file, "What is 6*7?", model=Recording(path))
    assert (again.text, again.error) == ("half", "provider_failed")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"message": "Something else?"}, "step 1: message was 'What is 6\\*7\\?' and is 'Something else\\?' now"),
        ({"tools": []}, "step 1: tools was"),
    ],
)
def test_another_question_than_the_recorded_one_fails_the_test(given: Any, words: str, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "sum.json"
    recorded(file, path, Script("42."))
    with pytest.raises(RecordingMismatch, match=words):
        run(file, **{"message": "What is 6*7?", **given}, model=Recording(path))


def test_a_question_more_than_was_recorded_fails_the_test(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "sum.json"
    recorded(file, path, Script("42."))
    talk = Conversation(file, model=Recording(path))
    talk.say("What is 6*7?")
    with pytest.raises(RecordingMismatch, match="has 1 steps, and the model is asked for the 2th time"):
        talk.say("And 7*6?")


def test_a_recording_that_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"make it once, with Recording\(path, record=True\)"):
        Recording(tmp_path / "none.json")
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="is no recording"):
        Recording(tmp_path / "other.json")


# --- alone ---

ALONE = """
import sys
sys.modules["django"] = sys.modules["rest_framework"] = sys.modules["celery"] = None
from agents_app.testing import Script, call, run
turn = run(sys.argv[1], "x", model=Script(call("calculator", expression="6*7"), "ok"))
print(turn.call("calculator").text)
"""


def test_nothing_of_a_server_is_needed(file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, str(file)],
        env={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("42\n", "")
