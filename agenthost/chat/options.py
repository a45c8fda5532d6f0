"""Values of an agent's options: from the command line, from environment variables, or entered by the user."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agenthost.chat.keyboard import Keyboard
from agenthost.chat.screen import Screen
from agenthost.client.agents import Agent, Option
from agenthost.client.errors import UsageError
from agenthost.client.safe_text import one_line

REDACTED = "***"


def from_arguments(
    agent: Agent, assignments: Sequence[str], variables: Sequence[str], keyboard: Keyboard | None, screen: Screen
) -> dict[str, str]:
    """The values of ``--option name=value``, ``--option name`` (asked for) and ``--option-env name=VARIABLE``."""
    values: dict[str, str] = {}
    for each in variables:
        name, equals, variable = each.partition("=")
        option = agent.option(name)
        if not equals:
            raise UsageError(f"--option-env {one_line(each)}: the form is NAME=VARIABLE")
        if variable not in os.environ:
            raise UsageError(f"--option-env {one_line(each)}: the variable {one_line(variable)} is not set")
        values[name] = option.checked(os.environ[variable])
    for each in assignments:
        name, equals, value = each.partition("=")
        option = agent.option(name)
        if equals and option.is_secret and value not in ("", REDACTED):
            raise UsageError(
                f"{name} is a secret, and other users can read command lines. Use --option {name} (asks for the value) or "
                f"--option-env {name}=VARIABLE"
            )
        if equals:
            values[name] = option.checked(value)
        elif keyboard is None:
            raise UsageError(f"--option {name} asks for the value, which needs a terminal; use --option {name}=VALUE")
        else:
            values[name] = ask(option, keyboard, screen)
    return values


def ask(option: Option, keyboard: Keyboard, screen: Screen) -> str:
    """Ask the user for the value: without echo for a secret, with the choices for a select."""
    name = one_line(option.name)
    if option.description:
        screen.note(f"  {one_line(option.description)}")
    if option.is_secret:
        return keyboard.secret(f"{name} (not shown): ")
    if option.kind != "select":
        return keyboard.answer(f"{name}: ")
    for number, choice in enumerate(option.choices, 1):
        screen.line(f"  {number} {one_line(choice)}{' (default)' if choice == option.default else ''}")
    while True:
        typed = keyboard.answer(f"{name} (1-{len(option.choices)}): ")
        if typed in option.choices:
            return typed
        if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(option.choices):
            return option.choices[int(typed) - 1]
        screen.note("  Please choose one of the values.")


def display(option: Option, values: dict[str, str]) -> str:
    """The current value for a list; for a secret only whether it is set."""
    value = values.get(option.name)
    if option.is_secret:
        return REDACTED if value else "(set by the operator)"
    return f"{option.default or '(empty)'} (default)" if value is None else value or "(empty)"
