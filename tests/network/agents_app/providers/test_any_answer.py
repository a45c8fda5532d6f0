"""Whatever a model says in whatever order: it is shown, and comes back as its vendor wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.fakes.scripted_server import ScriptedServer
from tests.network.agents_app.providers.loop_host import Conversation
from tests.network.agents_app.providers.vendors import VENDORS, Vendor

CHAT = Vendor("openai-chat", "gpt-test", lambda: ModelServer(strict=True), {}, "length", "content_filter")
words = st.sampled_from(["a", "Hello ", "\u00f6\U0001f6a2", "\n\n", " ", "x" * 200])
deltas = st.lists(words, min_size=1, max_size=3)
texts = st.builds(lambda said: steps.text(*said), deltas)
thoughts = st.builds(lambda said: steps.thinking(*said), st.lists(words, max_size=3))
calls = st.builds(
    lambda given, pieces: steps.call("look", given, pieces=pieces),
    st.sampled_from([{}, {"harbour": "Brest"}, {"harbour": "\u00f6\U0001f6a2 {}"}]),
    st.integers(1, 5),
)


def called(answer: steps.Answer) -> list[steps.Step]:
    return [each for each in answer if each["do"] == "call"]


# Calls are what thoughts come to: no model thinks in the same answer after them.
answers = st.builds(
    lambda before, after: before + after,
    st.lists(st.one_of(texts, thoughts), min_size=1, max_size=4),
    st.lists(st.one_of(texts, calls), max_size=4),
)


@pytest.fixture(scope="module", params=[*VENDORS, CHAT], ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    found: Vendor = request.param
    return found


@pytest.fixture(scope="module")
def server(vendor: Vendor) -> Iterator[ScriptedServer]:
    with vendor.serve() as serving:
        yield serving


async def look(harbour: str = "") -> str:
    return f"full in {harbour}"


@pytest.mark.rule("A57")
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(script=st.lists(answers, min_size=1, max_size=3), size=st.sampled_from([0, 0, 5]))
def test_any_answer_is_shown_and_taken_back(
    vendor: Vendor, server: ScriptedServer, script: list[steps.Answer], size: int
) -> None:
    # The turn is over with the first answer that calls nothing.
    over = next((number for number, answer in enumerate(script) if not called(answer)), len(script))
    spoken = script[: over + 1]
    if vendor.name == "anthropic":
        # With a budget this vendor's model thinks before its first call.
        spoken = [[steps.thinking("first"), *spoken[0]], *spoken[1:]]
    prompt = server.script(*[[steps.cut_every(size), *answer] for answer in spoken], [steps.text("the end")])
    conversation = Conversation(server, look=look)

    async def talk() -> None:
        await conversation.turn(prompt, vendor.full_model, settings=vendor.settings)
        await conversation.turn("and now?", vendor.full_model, settings=vendor.settings)

    asyncio.run(talk())
    asked = server.requests_of(prompt)
    assert [request.refused for request in server.requests[-len(asked) - 1 :]] == [""] * (len(asked) + 1)
    assert conversation.ends == [("end_turn", "")] * 2
    for answer, step in zip(spoken, conversation.steps, strict=False):
        said = "".join("".join(each["deltas"]) for each in answer if each["do"] == "text")
        assert step.text == said
        assert [call.name for call in step.calls] == [each["name"] for each in called(answer)]
        shown = "".join(text for _, kind, text in step.parts if kind == "thinking")
        for each in answer:
            if each["do"] == "thinking":
                assert "".join(each["deltas"]) in shown
