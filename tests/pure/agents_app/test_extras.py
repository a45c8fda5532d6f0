"""Agents that need an extra which is not installed: one fault each, with the command that installs it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from agents_app import extras, loader, object_references, providers
from agents_app.errors import AgentsFileError, ProviderError
from agents_app.providers import amazon, google_vertex

ROOT = Path(extras.__file__).parents[1]

BLOCKED = ("botocore", "boto3", "google.auth", "google.genai", "oauthlib", "pydantic_ai", "anthropic", "openai")


@pytest.fixture
def server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installation without extras: none of their modules can be imported."""
    for name in list(sys.modules):
        if any(name == module or name.startswith(f"{module}.") for module in BLOCKED):
            monkeypatch.delitem(sys.modules, name)
    for module in BLOCKED:
        monkeypatch.setitem(sys.modules, module, None)


def faults(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "agents.toml"
    path.write_text(text)
    with pytest.raises(AgentsFileError) as caught:
        loader.load(path)
    return [str(fault) for fault in caught.value.faults]


def agent(model: str, more: str = "") -> str:
    return f'[[agents]]\nname = "harbour"\nmodel = "{model}"\n{more}\n'


def advice(extra: str) -> str:
    return f"which is not installed: run ops/bootstrap --with {extra}, or build the image with --build-arg EXTRAS={extra}"


@pytest.mark.usefixtures("server_alone")
@pytest.mark.parametrize(("provider", "extra"), [("bedrock", "bedrock"), ("google-vertex", "vertex")])
def test_a_provider_without_its_extra_is_a_fault_that_names_agent_extra_and_command(
    tmp_path: Path, provider: str, extra: str
) -> None:
    # With a key too: what an agent needs does not depend on the environment that the file is checked in.
    (fault,) = faults(tmp_path, agent(f"{provider}:some-model", 'api_key = "sk-1"'))
    assert fault == f"agents[0] (harbour) model: the provider {provider} needs the extra {extra}, {advice(extra)}"


@pytest.mark.usefixtures("server_alone")
def test_the_model_of_summaries_and_the_choices_of_a_select_are_checked_too(tmp_path: Path) -> None:
    more = """
compaction = "summarise"
context_tokens = 8000
summary = { model = "bedrock:small" }
[[agents.options]]
type = "select"
name = "vendor"
options = ["openai-chat", "google-vertex"]
"""
    found = faults(tmp_path, agent("{vendor}:m", more))
    assert [fault.partition(", which")[0] for fault in found] == [
        "agents[0] (harbour) model: the provider google-vertex needs the extra vertex",
        "agents[0].summary (harbour) model: the provider bedrock needs the extra bedrock",
    ]


@pytest.mark.usefixtures("server_alone")
@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from pydantic_ai import Agent", "pydantic-ai"),
        ("from pydantic_ai.models.test import TestModel", "pydantic-ai"),
        ("import botocore.session", "bedrock"),
        ("import google.auth", "vertex"),
        # A library that tells it in words of its own.
        ("try:\n    import openai\nexcept ImportError as e:\n    raise ImportError('please install') from e", "pydantic-ai"),
    ],
)
def test_code_that_imports_a_missing_extra_is_a_fault_of_its_agent(tmp_path: Path, code: str, extra: str) -> None:
    module = f"quay_{abs(hash(code))}"
    (tmp_path / f"{module}.py").write_text(code)
    (fault,) = faults(tmp_path, f'[[agents]]\nname = "harbour"\npython = "{module}:agent"\n')
    assert fault == f"agents[0] (harbour) python: cannot import {module}: it needs the extra {extra}, {advice(extra)}"
    (fault,) = faults(tmp_path, agent("demo:guide", f'[[agents.tools]]\npython = "{module}:tool"'))
    assert fault.startswith("agents[0].tools[0] (harbour) python: ")
    assert fault.endswith(advice(extra))


@pytest.mark.usefixtures("server_alone")
async def test_a_turn_that_another_process_accepted_ends_with_the_same_advice() -> None:
    with pytest.raises(ProviderError, match="ops/bootstrap --with bedrock") as caught:
        await amazon.identity(None)
    assert caught.value.fault == "configuration"
    with pytest.raises(ProviderError, match="ops/bootstrap --with vertex"):
        google_vertex._token()


def test_a_new_image_gets_the_extras_that_are_installed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    assert extras.command("bedrock").endswith("EXTRAS=bedrock,oidc,pydantic-ai,vertex")


def test_a_module_that_is_missing_for_another_reason_is_named(tmp_path: Path) -> None:
    (tmp_path / "quay_other.py").write_text("import no_such_library.part")
    object_references.add_folder(tmp_path)
    with pytest.raises(object_references.ObjectNotFound) as caught:
        object_references.find("quay_other:x")
    assert str(caught.value) == (
        "cannot import quay_other: it needs the module no_such_library, which is not installed: install the package that has it"
        " with .venv/bin/python -m pip install, or in an image of your own (docs/packages.md)"
    )


def test_with_all_extras_nothing_is_missing() -> None:
    assert all(extras.is_installed(extra) for extra in extras.EXTRAS.values())
    assert [name for name in providers.NAMES if extras.missing_for_provider(name)] == []


def test_the_extras_are_those_of_the_project() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(declared) == {*extras.EXTRAS, "all"}
