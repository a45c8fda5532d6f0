"""The interactive chat in a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.chat.conftest import Desk
from tests.e2e.server import Server
from tests.e2e.terminal import Terminal
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.fakes.pictures import png
from tests.paths import ROOT

Start = Callable[..., Terminal]
PROMPT = "\n> "


def session_of(terminal: Terminal) -> str:
    """Leave, and read in the farewell which session it was."""
    terminal.press("d")
    assert terminal.ends() == 0
    found = re.findall(r"--resume (sess_[\w-]+)", terminal.text)
    assert found, terminal.text
    return str(found[-1])


def test_a_whole_chat_with_the_demo_agent(chat: Start) -> None:
    terminal = chat("demo")
    terminal.expect("Demo guide (demo 1.0.0)")
    terminal.expect(PROMPT)
    terminal.send("Hello!")
    terminal.expect("I am a scripted guide")
    terminal.expect(PROMPT)
    terminal.send("What is 17*23?")
    terminal.expect('→ calculator(expression="17*23")')
    terminal.expect("Allow calculator?")
    terminal.send("y")
    terminal.expect("= 391")
    terminal.expect("The calculator says 391.")
    terminal.expect(PROMPT)
    assert session_of(terminal).startswith("sess_")


def test_text_is_shown_while_it_streams_and_thinking_is_dimmed(chat: Start, model: ModelServer) -> None:
    prompt = model.script([steps.thinking("hm hm"), steps.text("first "), steps.gate("rest"), steps.text("second")])
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("first ")
    model.wait_gate("rest")
    assert "second" not in terminal.text
    model.open_gate("rest")
    terminal.expect("second")
    terminal.expect(PROMPT)
    assert b"\x1b[2mhm " in terminal.raw
    assert "hm hm\nfirst second\n" in terminal.text


@pytest.mark.variants
@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_disables_escape_sequences(chat: Start, model: ModelServer, variables: dict[str, str]) -> None:
    prompt = model.script([steps.thinking("hm"), steps.text("plain")])
    terminal = chat("echo", **variables)
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("(thinking) hm")
    terminal.expect("plain")
    terminal.expect(PROMPT)
    assert b"\x1b[2m" not in terminal.raw
    assert b"\x1b[1m" not in terminal.raw
    if variables == {"TERM": "dumb"}:
        assert b"\x1b" not in terminal.raw


@pytest.mark.slow
def test_a_terminal_without_unicode_shows_replacements(chat: Start, model: ModelServer) -> None:
    prompt = model.script([steps.text("naïve ☃ done")])
    terminal = chat("echo", TERM="dumb", PYTHONIOENCODING="latin-1")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect(" ? done")
    terminal.expect(PROMPT)
    assert b"na\xefve" in terminal.raw


def test_model_text_cannot_control_the_terminal(chat: Start, model: ModelServer, hall: Server) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31mover\rwrite"
    prompt = model.script(
        [steps.thinking(f"t{evil}"), steps.text(f"a{evil}"), steps.call("tide_table", {"harbour": f"{evil}\u202egnp.exe"})],
        [steps.text("end")],
    )
    terminal = chat("pilot", NO_COLOR="1", TERM="dumb")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("Allow tide_table?")
    terminal.send("y")
    terminal.expect("end")
    terminal.expect(PROMPT)
    assert b"\x1b" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "a␛]0;owned␇␛[2J�31moverwrite" in terminal.text
    # What is to be allowed is seen as it is, order of letters included.
    assert "\\u202egnp.exe" in terminal.text
    assert "\u202e" not in terminal.text.partition("= high")[0]


def test_an_answer_is_shown_as_markdown_wrapped_by_words(chat: Start, model: ModelServer) -> None:
    words = "some words that do not fit into one line of a narrow terminal"
    prompt = model.script(
        [steps.text("# Tides\n\n- **high** " + words), steps.text("\n\n|a|b|\n|-|-|\n|1|2|\n"), steps.text("`end`")]
    )
    terminal = chat("echo", columns=40)
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect(
        "Tides\n\n• high some words that do not fit into \n  one line of a narrow terminal\n\na │ b\n──┼──\n1 │ 2\nend\n"
    )
    assert b"\x1b[1mhigh\x1b[0m" in terminal.raw


@pytest.mark.slow
def test_a_terminal_that_is_resized_within_an_answer_wraps_the_rest_at_its_new_width(chat: Start, model: ModelServer) -> None:
    first, rest = "one two three four five six seven eight nine ten ", "eleven twelve thirteen fourteen fifteen sixteen"
    prompt = model.script([steps.text(first), steps.gate("resizing"), steps.text(rest)])
    terminal = chat("echo", columns=60)
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("nine ten ")
    terminal.resize(24)
    model.open_gate("resizing")
    terminal.expect("\neleven twelve thirteen \nfourteen fifteen sixteen\n")
    terminal.expect(PROMPT)


def test_waiting_is_shown_until_the_answer_comes_and_ctrl_c_stops_it(chat: Start, model: ModelServer) -> None:
    prompt = model.script([steps.gate("thinking"), steps.text("here it is")])
    hanging = model.script([steps.hang()])
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect_raw(b"Waiting for the agent")
    model.open_gate("thinking")
    terminal.expect("here it is")
    terminal.expect(PROMPT)
    assert b"\r\x1b[Khere it is" in terminal.raw
    terminal.send(hanging)
    terminal.expect_raw(b"Waiting for the agent")
    terminal.press("c")
    terminal.expect("Stopped")
    terminal.expect(PROMPT)


@pytest.mark.slow
def test_rendered_text_cannot_control_the_terminal(chat: Start, model: ModelServer) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    text = f"# {evil}\n**{evil}**\n```{evil}\n{evil}\n```\n|{evil}|\n|-|\n|{evil}|\n[x](http://{evil}) end"
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.thinking(evil), steps.text(text)]))
    terminal.expect(") end")
    shown = terminal.raw.decode().partition(" end")[0]
    assert "\x1b]0;" not in shown
    assert "\x07" not in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown


@pytest.mark.slow
def test_tokens_are_shown_after_an_answer_and_dates_in_the_list(chat: Start, model: ModelServer, hall: Server) -> None:
    key = hall.new_tenant().key
    assert key is not None
    terminal = chat("echo", AGENTHOST_KEY=key)
    terminal.expect(PROMPT)
    terminal.send("alpha")
    terminal.expect("echo: alpha")
    terminal.expect("(10 tokens in, ")
    terminal.expect(PROMPT)
    terminal.send("beta")
    terminal.expect("echo: beta")
    terminal.expect("(10 tokens in, ")
    terminal.expect("; the session 20 tokens in, ")
    terminal.expect(PROMPT)
    terminal.send("/sessions")
    terminal.expect("*1")
    assert re.search(r"echo +\d\d:\d\d +$", terminal.expect("alpha"))


def test_a_granted_tool_runs_once_and_a_denied_one_does_not(chat: Start, model: ModelServer, hall: Server) -> None:
    granted = model.script([steps.call("tide_table", {"harbour": "Husum"})], [steps.text("so much for Husum")])
    denied = model.script([steps.call("tide_table", {"harbour": "Emden"})], [steps.text("so much for Emden")])
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(granted)
    terminal.expect("Allow tide_table?")
    terminal.send("perhaps")
    terminal.expect("Please answer y or n")
    terminal.expect("Allow tide_table?")
    terminal.send("y")
    terminal.expect("= high 06:12, low 12:31 in Husum")
    terminal.expect("so much for Husum")
    terminal.expect(PROMPT)
    terminal.send(denied)
    terminal.expect("Allow tide_table?")
    terminal.send("n too far north")
    terminal.expect("= Tool call denied: too far north")
    terminal.expect("so much for Emden")
    assert hall.tools.executions("tide_table", harbour="Husum") == 1
    assert hall.tools.executions("tide_table", harbour="Emden") == 0


def test_a_trusted_tool_asks_no_more_in_this_session(chat: Start, model: ModelServer, hall: Server) -> None:
    first = model.script([steps.call("tide_table", {"harbour": "Kiel"})], [steps.text("first done")])
    second = model.script([steps.call("tide_table", {"harbour": "Lübeck"})], [steps.text("second done")])
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(first)
    terminal.expect("Allow tide_table?")
    terminal.send("t")
    terminal.expect("first done")
    terminal.expect(PROMPT)
    terminal.send(second)
    assert "Allow" not in terminal.expect("second done")
    assert hall.tools.executions("tide_table", harbour="Lübeck") == 1
    terminal.expect(PROMPT)
    tools = hall.alice.session(session_of(terminal))["agent"]["tools"]
    assert {"name": "tide_table", "trust": True} in tools


@pytest.mark.slow
def test_ctrl_d_during_a_turn_leaves_at_its_end(chat: Start, model: ModelServer) -> None:
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.text("begins"), steps.gate("leaving"), steps.text("ends")]))
    terminal.expect("begins")
    terminal.press("d")
    model.open_gate("leaving")
    terminal.expect("ends")
    assert terminal.ends() == 0


@pytest.mark.slow
def test_several_permissions_are_given_at_once(chat: Start, model: ModelServer, hall: Server) -> None:
    calls = [steps.call("tide_table", {"harbour": each}) for each in ("A1", "A2", "A3")]
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(model.script(calls, [steps.text("all three")]))
    terminal.expect("[a]llow all 3")
    terminal.send("a")
    terminal.expect("all three")
    assert [hall.tools.executions("tide_table", harbour=each) for each in ("A1", "A2", "A3")] == [1, 1, 1]


def test_text_typed_before_a_question_is_not_its_answer(chat: Start, model: ModelServer, hall: Server) -> None:
    prompt = model.script(
        [steps.text("wait"), steps.gate("typing"), steps.call("tide_table", {"harbour": "Rash"})], [steps.text("well")]
    )
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("wait")
    terminal.send("y")
    terminal.expect("(will be sent when the turn is over)")
    model.open_gate("typing")
    terminal.expect("Allow tide_table?")
    terminal.send("n")
    terminal.expect("Tool call denied")
    terminal.expect("well")
    # It was a message, and is sent as one.
    terminal.expect("> y")
    terminal.expect("echo: y")
    assert hall.tools.executions("tide_table", harbour="Rash") == 0


@pytest.mark.slow
def test_a_line_started_before_a_question_is_kept_for_the_next_message(chat: Start, model: ModelServer, hall: Server) -> None:
    prompt = model.script(
        [steps.text("wait"), steps.gate("writing"), steps.call("tide_table", {"harbour": "Haste"})], [steps.text("well")]
    )
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("wait")
    terminal.type("what about")
    terminal.expect("what about")
    model.open_gate("writing")
    terminal.expect("Allow tide_table?")
    terminal.send("n")
    terminal.expect("Tool call denied")
    terminal.expect("well")
    terminal.expect("> what about")
    terminal.send(" tomorrow?")
    terminal.expect("echo: what about tomorrow?")
    assert hall.tools.executions("tide_table", harbour="Haste") == 0


@pytest.mark.slow
def test_an_answer_to_one_permission_is_no_answer_to_the_next(chat: Start, model: ModelServer, hall: Server) -> None:
    calls = [steps.call("tide_table", {"harbour": each}) for each in ("B1", "B2")]
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(model.script(calls, [steps.text("both seen")]))
    terminal.expect("Allow tide_table?")
    terminal.type("y\ny\n")
    terminal.expect("Allow tide_table?")
    terminal.send("n")
    terminal.expect("both seen")
    assert [hall.tools.executions("tide_table", harbour=each) for each in ("B1", "B2")] == [1, 0]
    # It is not lost: the next message begins with it.
    terminal.expect("> y")


@pytest.mark.slow
def test_text_typed_after_a_secret_is_not_lost(chat: Start) -> None:
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send("/options model_key")
    terminal.expect("model_key (not shown): ")
    terminal.type("sk-quick-secret\nstill there\n")
    terminal.expect("model_key = ***")
    terminal.expect("echo: still there")
    assert "quick-secret" not in terminal.text


@pytest.mark.slow
def test_long_arguments_are_shown_in_full_before_they_are_allowed(chat: Start, model: ModelServer) -> None:
    harbour = "x" * 900 + "THE END"
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.call("tide_table", {"harbour": harbour})], [steps.text("fine")]))
    assert "THE END" not in terminal.expect("[s]how all arguments")
    terminal.send("s")
    terminal.expect("THE END")
    terminal.expect("Allow tide_table?")
    terminal.send("n")
    terminal.expect("fine")


def test_a_result_with_confirm_result_needs_a_second_permission(chat: Start, model: ModelServer) -> None:
    terminal = chat("mate")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.call("order_rope", {"metres": 3})], [steps.text("ordered it is")]))
    terminal.expect("Allow order_rope?")
    terminal.send("y")
    terminal.expect("order_rope has run. Send its result to the agent?")
    terminal.send("y")
    terminal.expect("3 m of grey rope ordered")
    terminal.expect("ordered it is")


def test_questions_of_an_agent_are_asked_one_by_one(chat: Start, model: ModelServer) -> None:
    questions = [
        {"id": "place", "kind": "text", "message": "Where to?"},
        {"id": "crew", "kind": "integer", "message": "How many?", "required": True},
        {
            "id": "rig",
            "kind": "single-select",
            "message": "Which rig?",
            "options": [{"id": "s", "label": "Sloop"}, {"id": "k", "label": "Ketch"}],
        },
        {"id": "night", "kind": "boolean", "message": "By night?"},
    ]
    prompt = model.script([steps.call("ask_user", {"message": "A trip", "questions": questions})], [steps.text("off we go")])
    terminal = chat("mate")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("A trip")
    terminal.expect("Where to?")
    terminal.expect("answer: ")
    terminal.send("Amrum")
    terminal.expect("(a number): ")
    terminal.send("")
    terminal.expect("This question needs an answer.")
    terminal.expect("(a number): ")
    terminal.send("four")
    terminal.expect("Please type a number.")
    terminal.send("4")
    terminal.expect("2 Ketch")
    terminal.send("2")
    terminal.expect("(y/n): ")
    terminal.send("")
    terminal.expect("off we go")
    told = model.requests_of(prompt)[1].messages[-1]
    assert json.loads(told["content"]) == {"place": "Amrum", "crew": 4, "rig": "k", "night": None}


TOOLS = '''
"""Tools of a test."""
from __future__ import annotations
from typing import Literal

def berth_of(ship: str, unit: Literal["m", "ft"] = "m") -> dict[str, object]:
    """Finds the berth of a ship.

    Args:
        ship: its name
    """
    print("looking it up")
    if ship == "Rum":
        raise LookupError("no such ship")
    return {"ship": ship, "berth": 7, "unit": unit}

async def horn(seconds: float) -> str:
    "Sounds the horn."
    return f"tooted for {seconds:g} s"

def _private() -> None: ...
'''


def test_tools_of_a_python_file_run_here(chat: Start, desk: Desk, model: ModelServer) -> None:
    (desk.directory / "harbour_tools.py").write_text(TOOLS)
    prompt = model.script(
        [steps.call("berth_of", {"ship": "Ada", "unit": "ft"}), steps.call("horn", {"seconds": 2})],
        [steps.call("berth_of", {"ship": "Rum"}), steps.call("berth_of", {"unit": "miles"})],
        [steps.text("all told")],
    )
    terminal = chat("echo", "--tools", "harbour_tools.py")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("running berth_of locally …")
    terminal.expect("looking it up")
    terminal.expect('= {"ship": "Ada", "berth": 7, "unit": "ft"}')
    terminal.expect("= tooted for 2 s")
    terminal.expect("berth_of failed: LookupError: no such ship (")
    terminal.expect("the agent's arguments are invalid: ship: Field required; unit: Input should be 'm' or 'ft'")
    terminal.expect("all told")
    requests = model.requests_of(prompt)
    assert requests[0].tool_names == ["berth_of", "horn"]
    declared = requests[0].body["tools"][0]["function"]
    assert declared["description"] == "Finds the berth of a ship."
    assert declared["parameters"]["properties"]["ship"] == {"description": "its name", "type": "string"}
    assert [message["content"] for message in requests[1].messages[-2:]] == [
        '{"ship": "Ada", "berth": 7, "unit": "ft"}',
        "tooted for 2 s",
    ]
    assert requests[2].messages[-2]["content"] == "Tool execution failed: LookupError: no such ship"
    assert requests[2].messages[-1]["content"].startswith("Tool execution failed: ship: Field required")


@pytest.mark.slow
def test_the_user_types_the_result_of_a_declared_tool(chat: Start, desk: Desk, model: ModelServer) -> None:
    (desk.directory / "tools.json").write_text(json.dumps([{"name": "weather", "description": "How it is outside."}]))
    prompt = model.script([steps.call("weather", {"where": "here"})], [steps.call("weather", {})], [steps.text("thanks")])
    terminal = chat("echo", "--tool-file", "tools.json")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect('→ weather(where="here")')
    terminal.expect("weather = ")
    terminal.send("windy\\")
    terminal.expect("... ")
    terminal.send("and wet")
    terminal.expect("weather = ")
    terminal.send("/deny I am not outside")
    terminal.expect("thanks")
    requests = model.requests_of(prompt)
    assert requests[1].messages[-1]["content"] == "windy\nand wet"
    assert requests[2].messages[-1]["content"] == "Tool call denied: I am not outside"


def test_options_are_shown_and_changed_and_a_secret_is_never_seen(chat: Start, model: ModelServer, hall: Server) -> None:
    prompt, later = model.script([steps.text("one")]), model.script([steps.text("two")])
    terminal = chat("pilot", "--option", "tone=calm", "--option-env", "model_key=MY_SECRET", MY_SECRET="sk-first-secret")
    terminal.expect(PROMPT)
    terminal.send("/options")
    terminal.expect("metric (default)")
    terminal.expect("calm")
    terminal.expect("***")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("one")
    terminal.expect(PROMPT)
    terminal.send("/options units")
    terminal.expect("2 imperial")
    terminal.expect("units (1-2): ")
    terminal.send("9")
    terminal.expect("Please choose one of the values.")
    terminal.send("2")
    terminal.expect("units = imperial")
    terminal.expect(PROMPT)
    terminal.send("/options units=cubits")
    terminal.expect("units cannot be 'cubits'; choose one of metric, imperial")
    terminal.expect(PROMPT)
    terminal.send("/options toan=x")
    terminal.expect("did you mean tone?")
    terminal.expect(PROMPT)
    terminal.send("/options model_key")
    terminal.expect("model_key (not shown): ")
    terminal.send("sk-second-secret")
    terminal.expect("model_key = ***")
    terminal.expect(PROMPT)
    terminal.send(later)
    terminal.expect("two")
    first, second = model.requests_of(prompt)[0], model.requests_of(later)[0]
    assert first.api_key == "sk-first-secret"
    assert first.messages[0]["content"] == "Tone: calm. Units: metric."
    assert second.api_key == "sk-second-secret"
    assert second.messages[0]["content"] == "Tone: calm. Units: imperial."
    assert "-secret" not in terminal.text


@pytest.mark.slow
def test_an_image_of_a_file_goes_with_the_next_message(chat: Start, desk: Desk, model: ModelServer) -> None:
    (desk.directory / "a boat.png").write_bytes(png())
    (desk.directory / "fake.png").write_bytes(b"not at all")
    prompt = model.script([steps.text("a boat")])
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send("/image fake.png")
    terminal.expect("fake.png is not a PNG, JPEG, GIF or WebP image")
    terminal.expect(PROMPT)
    terminal.send("/image missing.png")
    terminal.expect("There is no file missing.png")
    terminal.expect(PROMPT)
    terminal.send("/image 'a boat.png'")
    terminal.expect("image/png")
    terminal.expect("will be sent with the next message")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("a boat\n")
    parts = model.requests_of(prompt)[0].messages[-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")


@pytest.mark.slow
def test_an_agent_that_takes_no_images_is_not_sent_one(chat: Start, desk: Desk) -> None:
    (desk.directory / "boat.png").write_bytes(png())
    terminal = chat("bare")
    terminal.expect(PROMPT)
    terminal.send("/image boat.png")
    terminal.expect("bare does not accept images from files.")


def test_ctrl_c_stops_the_turn_at_the_server_and_says_so(chat: Start, model: ModelServer) -> None:
    terminal = chat("echo")
    terminal.expect(PROMPT)

    def stop_one() -> bool:
        prompt = model.script([steps.text("going on "), steps.hang()])
        terminal.send(prompt)
        terminal.expect("going on ")
        terminal.press("c")
        terminal.expect("Stopped")
        assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"
        return terminal.expect(PROMPT).startswith("; the request to the model is closed.")

    # It waits a second for the end of the request. A machine under pressure may lose one, but not every time.
    assert any(stop_one() for _ in range(5))
    terminal.send("still there?")
    terminal.expect("echo: still there?")


@pytest.mark.slow
def test_cancel_typed_during_a_turn_stops_it(chat: Start, model: ModelServer) -> None:
    prompt = model.script([steps.text("going on "), steps.hang()])
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("going on ")
    terminal.send("/cancel")
    terminal.expect("Stopped")
    terminal.expect(PROMPT)
    assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"
    terminal.send("/cancel")
    terminal.expect("Nothing is running.")


@pytest.mark.slow
def test_ctrl_c_at_a_question_stops_the_waiting_turn(chat: Start, model: ModelServer, hall: Server) -> None:
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.call("tide_table", {"harbour": "Nowhere"})]))
    terminal.expect("Allow tide_table?")
    terminal.interrupt_until("Stopped.")
    terminal.expect(PROMPT)
    history = hall.alice.history(session_of(terminal))
    assert history[-1]["content"] == "Tool call denied: cancelled"
    assert hall.tools.executions("tide_table", harbour="Nowhere") == 0


@pytest.mark.slow
def test_ctrl_c_drops_a_line_and_exits_at_an_empty_prompt(chat: Start) -> None:
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.type("half a mess")
    terminal.expect("half a mess")
    terminal.interrupt_until(PROMPT)
    assert terminal.interrupted() == 0


def test_a_detached_turn_continues_and_can_be_watched_again(chat: Start, model: ModelServer) -> None:
    prompt = model.script([steps.text("first "), steps.gate("detached"), steps.text("second")])
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send(prompt)
    terminal.expect("first ")
    model.wait_gate("detached")
    terminal.send("/detach")
    terminal.expect("the turn continues at the server")
    terminal.expect(PROMPT)
    terminal.send("/watch")
    terminal.expect("first ")
    model.open_gate("detached")
    terminal.expect("second")


def test_a_session_is_resumed_with_its_history_and_settings(chat: Start, model: ModelServer) -> None:
    first, later = model.script([steps.text("one fish")]), model.script([steps.text("two fish")])
    terminal = chat("pilot", "--option", "tone=merry", "--trust", "tide_table")
    terminal.expect(PROMPT)
    terminal.send(first)
    terminal.expect("one fish")
    terminal.expect(PROMPT)
    session = session_of(terminal)
    again = chat("--resume", session)
    again.expect("one fish")
    again.expect(f"Session {session}")
    again.expect(PROMPT)
    again.send("/tools")
    again.expect("tide_table")
    assert again.expect("order_rope").split()[0] == "trust"
    again.expect(PROMPT)
    again.send(later)
    again.expect("two fish")
    request = model.requests_of(later)[0]
    assert request.messages[0]["content"] == "Tone: merry. Units: metric."
    assert [message["content"] for message in request.messages[1:]] == [first, "one fish", later]


@pytest.mark.slow
def test_an_open_permission_is_asked_again_at_resume(chat: Start, model: ModelServer, hall: Server) -> None:
    terminal = chat("pilot")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.call("tide_table", {"harbour": "Cuxhaven"})], [steps.text("at last")]))
    terminal.expect("Allow tide_table?")
    session = session_of(terminal)
    again = chat("pilot", "--resume", session)
    again.expect("The agent waits for an answer:")
    again.expect("Allow tide_table?")
    again.send("y")
    again.expect("at last")
    assert hall.tools.executions("tide_table", harbour="Cuxhaven") == 1


def test_a_running_turn_is_joined_at_resume(chat: Start, model: ModelServer, hall: Server) -> None:
    prompt = model.script([steps.text("under way "), steps.gate("joining"), steps.text("and done")])
    session = hall.alice.create()
    with hall.alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        terminal = chat("--resume", session)
        terminal.expect("under way ")
        model.open_gate("joining")
        terminal.expect("and done")
        terminal.expect(PROMPT)
        stream.rest()


@pytest.mark.slow
def test_a_message_during_a_running_turn_can_be_sent_after_it(chat: Start, model: ModelServer, hall: Server) -> None:
    prompt = model.script([steps.text("somebody else's "), steps.gate("theirs"), steps.text("turn")])
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send("mine")
    terminal.expect("echo: mine")
    terminal.expect(PROMPT)
    terminal.send("/session")
    found = re.search(r"sess_[\w-]+", terminal.expect(PROMPT))
    assert found is not None
    with hall.alice.stream(found[0], prompt) as stream:
        stream.until("text_delta")
        terminal.send("and now?")
        terminal.expect("A turn is already running in this session. Watch it?")
        terminal.send("")
        terminal.expect("somebody else's ")
        model.open_gate("theirs")
        terminal.expect("turn")
        terminal.expect("Send your message now?")
        stream.rest()
        terminal.send("y")
        terminal.expect("echo: and now?")


def test_sessions_are_listed_switched_and_begun_anew(chat: Start, hall: Server) -> None:
    key = hall.new_tenant().key
    assert key is not None
    terminal = chat("echo", AGENTHOST_KEY=key)
    terminal.expect(PROMPT)
    terminal.send("alpha")
    terminal.expect("echo: alpha")
    terminal.expect(PROMPT)
    terminal.send("/new")
    terminal.expect("To continue: ")
    terminal.expect(PROMPT)
    terminal.send("beta")
    terminal.expect("echo: beta")
    terminal.expect(PROMPT)
    terminal.send("/sessions")
    terminal.expect("*1")
    assert terminal.expect("beta").split()[1] == "echo"
    assert terminal.expect("alpha").split()[0] == "2"
    terminal.expect(PROMPT)
    terminal.send("/resume 2")
    terminal.expect("echo: alpha")
    terminal.expect(PROMPT)
    terminal.send("gamma")
    terminal.expect("echo: gamma")
    terminal.expect(PROMPT)
    terminal.send("/history")
    shown = terminal.expect("echo: gamma")
    assert "echo: alpha" in shown
    assert "beta" not in shown


@pytest.mark.slow
def test_continued_and_pasted_lines_are_one_message(chat: Start, model: ModelServer) -> None:
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send("first line\\")
    terminal.expect("… ")
    terminal.send("second line")
    terminal.expect("echo: first line\nsecond line")
    terminal.expect(PROMPT)
    # As a terminal pastes it; without readline, what is there at once belongs together all the same.
    terminal.type("\x1b[200~pasted\ntogether\x1b[201~")
    terminal.type("\r")
    terminal.expect("echo: pasted\ntogether")


@pytest.mark.slow
def test_pasted_lines_are_one_message_without_readline_too(chat: Start) -> None:
    terminal = chat("echo", TERM="dumb")
    terminal.expect(PROMPT)
    terminal.type("one\ntwo\n")
    terminal.expect("echo: one\ntwo")


@pytest.mark.slow
def test_an_unknown_command_suggests_a_similar_one(chat: Start) -> None:
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send("/histroy")
    terminal.expect("There is no command /histroy; did you mean /history?")
    terminal.expect(PROMPT)
    terminal.send("/help")
    terminal.expect("/sessions")
    terminal.expect(PROMPT)
    terminal.send("//not a command")
    terminal.expect("echo: /not a command")


@pytest.mark.slow
def test_without_an_agent_name_the_user_chooses_from_a_list(chat: Start) -> None:
    terminal = chat()
    terminal.expect("1 echo")
    terminal.expect("Which agent?")
    terminal.send("ecko")
    terminal.expect("Type a number or a name from the list")
    terminal.send("1")
    terminal.expect("Echo (echo 1.0.0)")


def test_the_key_is_asked_for_and_not_shown(chat: Start, hall: Server) -> None:
    terminal = chat("echo", AGENTHOST_KEY="")
    terminal.expect("Key (not shown): ")
    terminal.send(hall.keys.alice)
    terminal.expect(PROMPT)
    terminal.send("hello")
    terminal.expect("echo: hello")


def test_once_at_a_terminal_asks_for_permissions(chat: Start, model: ModelServer, hall: Server) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "Onceport"})], [steps.text("once and for all")])
    terminal = chat("pilot", "--once", prompt, "--quiet")
    terminal.expect('→ tide_table(harbour="Onceport")')
    terminal.expect("Allow tide_table?")
    terminal.send("y")
    terminal.expect("once and for all")
    assert terminal.ends() == 0
    assert hall.tools.executions("tide_table", harbour="Onceport") == 1


@pytest.mark.slow
def test_token_limits_and_failures_are_shown(chat: Start, model: ModelServer) -> None:
    terminal = chat("echo")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.text("short"), steps.finish("length")]))
    terminal.expect("The answer is incomplete")
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.status(400)]))
    terminal.expect("The turn failed at the server. The reason is in the server's log. Turn id: turn_")
    terminal.expect(PROMPT)


@pytest.mark.variants
@pytest.mark.parametrize("agent", ["mute", "bare"])
def test_agents_with_fewer_stream_modes_work_in_the_chat(chat: Start, model: ModelServer, agent: str) -> None:
    terminal = chat(agent)
    terminal.expect(PROMPT)
    terminal.send(model.script([steps.text("an answer")]))
    terminal.expect("an answer")
    terminal.expect(PROMPT)


def test_manage_chat_issues_a_temporary_key(hall: Server, tmp_path: Path) -> None:
    environment = {**hall.environment, "AGENTHOST_PORT": str(hall.ports[0]), "TERM": "xterm"}
    with Terminal([sys.executable, "manage.py", "chat", "echo", "--tenant", "alice"], environment, ROOT) as terminal:
        terminal.expect("Using a temporary key of the tenant alice.")
        terminal.expect(PROMPT)
        terminal.send("from here")
        terminal.expect("echo: from here")
        terminal.expect(PROMPT)
        assert any("manage.py chat" in line and "active" in line for line in hall.manage("list_keys", "alice").splitlines())
        terminal.press("d")
        assert terminal.ends() == 0
        assert "python manage.py chat echo --tenant alice --resume sess_" in terminal.text
        assert "ah_" not in terminal.text
    assert not [line for line in hall.manage("list_keys", "alice").splitlines() if "manage.py chat" in line]
