"""Options: which value holds, what is refused, how templates are filled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import options
from agents_app.spec import OPTION_TYPES, AgentSpec, OptionSpec
from sessions_app.aap.versions import v3

AGENT = AgentSpec(
    "a",
    "demo:",
    options=(
        OptionSpec("text", "tone", default="brief"),
        OptionSpec("select", "units", default="metric", options=("metric", "imperial")),
        OptionSpec("secret", "key", default="sk-own"),
    ),
)


def test_the_agent_of_this_file_has_options_of_every_type() -> None:
    assert {option.type for option in AGENT.options} == set(OPTION_TYPES)


def test_the_default_of_every_type_is_a_value_that_clients_may_set() -> None:
    assert options.faults(AGENT, {option.name: option.default for option in AGENT.options}) == []


@pytest.mark.rule("A21")
def test_every_type_is_shown_over_aap_as_one_of_the_protocols_types() -> None:
    (agent,) = v3.meta([AGENT])["agents"]
    assert {option["type"] for option in agent["options"]} <= {"text", "select", "secret"}
    assert [option["name"] for option in agent["options"]] == [option.name for option in AGENT.options]


@pytest.mark.rule("A26")
def test_what_a_client_left_out_has_the_default() -> None:
    assert options.effective(AGENT, {}) == {"tone": "brief", "units": "metric", "key": "sk-own"}
    assert options.effective(AGENT, {"units": "imperial", "tone": ""}) == {"tone": "", "units": "imperial", "key": "sk-own"}


@pytest.mark.rule("A44")
def test_a_choice_that_is_gone_falls_back_and_a_removed_option_is_passed_over() -> None:
    assert options.effective(AGENT, {"units": "nautical", "gone": "x"})["units"] == "metric"
    assert "gone" not in options.effective(AGENT, {"gone": "x"})


@pytest.mark.rule("A69")
@pytest.mark.parametrize("echoed", ["", "***"])
def test_an_empty_or_masked_secret_means_the_operators_default(echoed: str) -> None:
    assert options.effective(AGENT, {"key": echoed})["key"] == "sk-own"
    assert options.effective(AGENT, {"key": "sk-mine"})["key"] == "sk-mine"


@pytest.mark.rule("A52")
def test_values_are_filled_in_once_as_plain_text() -> None:
    assert options.fill("{tone} and {units}", {"tone": "{units}", "units": "\\1"}) == "{units} and \\1"
    assert options.fill('{"a": {tone}} {unknown} {{tone}} {}', {"tone": "x"}) == '{"a": x} {unknown} {tone} {}'


@given(st.text(), st.text())
def test_filling_never_fails_and_changes_nothing_without_places(template: str, value: str) -> None:
    filled = options.fill(template, {"a": value})
    if "{" not in template:
        assert filled == template
    assert options.fill("{a}", {"a": value}) == value


def test_settings_are_filled_at_every_depth_but_not_in_names() -> None:
    assert options.fill_all({"{a}": ["{a}", 1, None, {"x": "{a}"}]}, {"a": "v"}) == {"{a}": ["v", 1, None, {"x": "v"}]}


@pytest.mark.rule("A83")
def test_unknown_options_wrong_choices_and_values_that_are_no_strings_are_refused() -> None:
    found = options.faults(AGENT, {"tone": "any", "units": "nautical", "nope": "x", "key": 3})
    assert [name for name, _ in found] == ["units", "nope", "key"]
    assert "nautical" not in str(found)
    assert options.faults(AGENT, {"key": "***", "units": "imperial"}) == []


def test_a_value_that_is_longer_than_any_answer_should_show_is_refused_without_being_repeated() -> None:
    assert options.faults(AGENT, {"tone": "x" * options.LONGEST_VALUE}) == []
    assert options.faults(AGENT, {"tone": "x" * (options.LONGEST_VALUE + 1)}) == [
        ("tone", "The value has 262,145 characters; the limit is 262,144.")
    ]
