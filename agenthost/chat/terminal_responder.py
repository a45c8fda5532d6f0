"""Answers tool calls by asking the user at the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agenthost.chat.calls import Decision, Denied
from agenthost.chat.keyboard import Keyboard
from agenthost.chat.screen import Screen
from agenthost.client.calls import Call
from agenthost.client.safe_text import one_line


class TerminalResponder:
    """Asks until there is a valid answer. Ctrl-C and Ctrl-D raise KeyboardInterrupt and EOFError."""

    def __init__(self, keyboard: Keyboard, screen: Screen) -> None:
        self._keyboard = keyboard
        self._screen = screen

    # --- permissions ---

    def permission(self, call: Call, *, others: int) -> Decision:
        name = one_line(call.name)
        question = f"{name} has run. Send its result to the agent?" if call.was_granted else f"Allow {name}?"
        choices = ["[y]es", "[n]o, or n and a reason"]
        if not call.was_granted:
            choices.append("[t]rust it in this session")
        if others:
            choices.append(f"[a]llow all {others + 1}")
        if not call.shown_whole:
            choices.append("[s]how all arguments")
        prompt = f"{question} {', '.join(choices)}: "
        self._keyboard.begin_question()
        while True:
            answer = self._keyboard.answer(prompt)
            word, _, rest = answer.partition(" ")
            match word.lower().rstrip(","):
                case "y" | "yes" if not rest:
                    return Decision(granted=True)
                case "n" | "no":
                    return Decision(granted=False, reason=rest.strip())
                case "t" | "trust" if not rest and not call.was_granted:
                    return Decision(granted=True, trusts=True)
                case "a" | "all" if others and not rest:
                    return Decision(granted=True, for_all=True)
                case "s" | "show":
                    self._screen.whole_call(call.name, call.input)
                case _:
                    self._screen.note("  Please answer y or n; Ctrl-C stops the turn.")

    # --- results ---

    def result(self, call: Call) -> str | Denied:
        self._keyboard.begin_question()
        if not call.shown_whole:
            self._screen.whole_call(call.name, call.input)
        self._screen.note("  Type the result of this call (end a line with \\ to continue it), or /deny and a reason.")
        typed = self._keyboard.text(f"{one_line(call.name)} = ")
        if typed == "/deny" or typed.startswith("/deny "):
            return Denied(typed.removeprefix("/deny").strip())
        return typed

    # --- questions of an agent ---

    def questions(self, call: Call) -> str | Denied:
        self._keyboard.begin_question()
        if call.input.get("message"):
            self._screen.line(str(call.input["message"]))
        self._screen.note("  Press Enter to skip a question; /deny declines all of them.")
        answers: dict[str, Any] = {}
        for number, question in enumerate(call.input["questions"]):
            if number:
                self._keyboard.begin_question()
            answer = self._question(question)
            if isinstance(answer, Denied):
                return answer
            answers[str(question.get("id", len(answers) + 1))] = answer
        return json.dumps(answers, ensure_ascii=False)

    def _question(self, question: Mapping[str, Any]) -> Any:
        """The answer; None if the user skipped the question."""
        kind = question.get("kind")
        choices = [each for each in question.get("options") or [] if isinstance(each, dict) and "id" in each]
        self._screen.line(str(question.get("message") or question.get("title") or question.get("id")))
        for number, choice in enumerate(choices, 1):
            mark = " (recommended)" if choice.get("recommended") is True else ""
            self._screen.line(f"  {number} {one_line(str(choice.get('label', choice['id'])))}{mark}")
        hint = {"boolean": " (y/n)", "integer": " (a number)", "number": " (a number)", "multi-select": " (several: 1, 3)"}
        while True:
            typed = self._keyboard.answer(f"answer{hint.get(str(kind), '')}: ")
            if typed == "/deny" or typed.startswith("/deny "):
                return Denied(typed.removeprefix("/deny").strip())
            if not typed:
                if question.get("required") is True:
                    self._screen.note("  This question needs an answer.")
                    continue
                return None
            try:
                return _parse(typed, str(kind), choices, free=question.get("allowFreeformInput") is True)
            except ValueError as error:
                self._screen.note(f"  {error}")


def _parse(typed: str, kind: str, choices: Sequence[Mapping[str, Any]], *, free: bool) -> Any:
    """The typed text as a value of the question's kind; ValueErrors are shown to the user."""
    match kind:
        case "boolean":
            if typed.lower() in ("y", "yes", "true", "n", "no", "false"):
                return typed.lower() in ("y", "yes", "true")
            raise ValueError("Please answer y or n.")
        case "integer" | "number":
            try:
                return int(typed) if kind == "integer" else float(typed)
            except ValueError:
                raise ValueError("Please type a number.") from None
        case "single-select":
            return _choice(typed, choices, free=free)
        case "multi-select":
            return [_choice(each.strip(), choices, free=free) for each in typed.split(",") if each.strip()]
    return typed


def _choice(typed: str, choices: Sequence[Mapping[str, Any]], *, free: bool) -> str:
    if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(choices):
        return str(choices[int(typed) - 1]["id"])
    for choice in choices:
        if typed.casefold() in (str(choice["id"]).casefold(), str(choice.get("label", "")).casefold()):
            return str(choice["id"])
    if free:
        return typed
    raise ValueError(f"Please choose a number from 1 to {len(choices)}.")
