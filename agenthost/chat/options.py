"""An agent's options as a person sets them: on the command line, from a variable, or asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agenthost.chat.agents import Agent, Option
from agenthost.chat.errors import WrongUse
from agenthost.chat.keyboard import Keyboard
from agenthost.chat.safe_text import one_line
from agenthost.chat.screen import Screen

REDACTED = "***"


def given(
    agent: Agent, written: Sequence[str], variables: Sequence[str], keyboard: Keyboard | None, screen: Screen
) -> dict[str, str]:
    """The values of ``--option name=value``, ``--option name`` (asked for) and ``--option-env name=VARIABLE``."""
    values: dict[str, str] = {}
    for each in variables:
        name, equals, variable = each.partition("=")
        option = agent.option(name)
        if not equals or variable not in os.environ:
            raise WrongUse(f"--option-env takes NAME=VARIABLE, and the variable {variable or each} is not set")
        values[name] = option.checked(os.environ[variable])
    for each in written:
        name, equals, value = each.partition("=")
        option = agent.option(name)
        if equals and option.is_secret and value not in ("", REDACTED):
            raise WrongUse(
                f"{name} is a secret: on a command line others can read it. Use --option {name} (it is asked for) or "
                f"--option-env {name}=VARIABLE"
            )
        if equals:
            values[name] = option.checked(value)
        elif keyboard is None:
            raise WrongUse(f"--option {name} asks for the value, and nobody can be asked here; use --option {name}=VALUE")
        else:
            values[name] = asked(option, keyboard, screen)
    return values


def asked(option: Option, keyboard: Keyboard, screen: Screen) -> str:
    """The value, from the person at the terminal: a secret is not shown, a select offers its choices."""
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
        screen.note("  Please choose one of them.")


def shown(option: Option, values: dict[str, str]) -> str:
    """The value in force, for a list; of a secret only whether there is one."""
    value = values.get(option.name)
    if option.is_secret:
        return REDACTED if value else "(the operator's)"
    return f"{option.default or '(empty)'} (default)" if value is None else value or "(empty)"
