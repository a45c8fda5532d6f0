"""Who summarises for an agent, as an agents file says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_app import loader
from agents_app.errors import AgentsFileError
from agents_app.spec import SummarySpec

AGENT = """
[[agents]]
name = "a"
model = "openai-chat:m"
context_tokens = 900
compaction = "summarise"
"""
OPTIONS = """
[[agents.options]]
type = "secret"
name = "key"
default = "sk-operator"
[[agents.options]]
type = "text"
name = "words"
[[agents.options]]
type = "select"
name = "host"
options = ["http://a.example", "http://b.example"]
"""


def faults(folder: Path, text: str) -> list[str]:
    path = folder / "agents.toml"
    path.write_text(text)
    with pytest.raises(AgentsFileError) as caught:
        loader.load(path)
    assert "sk-operator" not in str(caught.value)
    return [f"{fault.table} {fault.key}" for fault in caught.value.faults]


def test_an_agents_file_names_who_summarises(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(
        AGENT + '[agents.summary]\nmodel = "openai-chat:small"\napi_key = "{key}"\n'
        'base_url = "https://small.example/v1"\nheaders = { X-Team = "red" }\ncontext_tokens = 3000\n' + OPTIONS
    )
    (agent,) = loader.load(path)
    assert agent.summary == SummarySpec("openai-chat:small", "{key}", "https://small.example/v1", {"X-Team": "red"}, 3000)
    path.write_text(AGENT)
    assert loader.load(path)[0].summary == SummarySpec()


@pytest.mark.parametrize(
    ("summary", "place"),
    [
        ('model = "nobody:knows"', "agents[0].summary (a) model"),
        ('model = "small"', "agents[0].summary (a) model"),
        ('model = ""', "agents[0].summary (a) model"),
        ('model = "openai-chat:{words}"', "agents[0].summary (a) model"),
        ('model = "openai-chat:{key}"', "agents[0].summary (a) model"),
        ('api_key = "{nothing}"', "agents[0].summary (a) api_key"),
        ('base_url = "ftp://x.example"', "agents[0].summary (a) base_url"),
        ('base_url = "{host}"\napi_key = "sk-operator"', "agents[0].summary (a) api_key"),
        ('base_url = "{host}"\napi_key = "{key}"', "agents[0].summary (a) base_url"),
        ('base_url = "{words}"', "agents[0].summary (a) base_url"),
        ('headers = { Host = "x" }', "agents[0].summary (a) headers"),
        ("context_tokens = 0", "agents[0].summary (a) context_tokens"),
        ('prompt = "be brief"', "agents[0].summary (a) prompt"),
    ],
)
def test_what_is_wrong_with_it_is_told_by_its_place(tmp_path: Path, summary: str, place: str) -> None:
    assert faults(tmp_path, AGENT + f"[agents.summary]\n{summary}\n" + OPTIONS) == [place]


def test_whoever_summarises_where_nothing_is_summarised_is_a_slip_of_the_pen(tmp_path: Path) -> None:
    text = AGENT.replace('"summarise"', '"drop"') + '[agents.summary]\nmodel = "openai-chat:small"\n'
    assert faults(tmp_path, text) == ["agents[0] (a) summary"]
