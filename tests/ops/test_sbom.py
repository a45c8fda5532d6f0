"""The bill of materials: valid by CycloneDX's own schema, complete by the lock, and the same each time."""

from __future__ import annotations

import json
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from ops import environment, sbom
from ops.environment import LOCK

APPLICATION = "agenthost@0.1.0"


def written(directory: Path, *arguments: str) -> str:
    file = directory / "sbom.json"
    assert sbom.main([*arguments, "--output", str(file)]) == 0
    return file.read_text()


@pytest.mark.parametrize("extras", ["", "all"])
def test_it_is_valid_and_the_same_each_time(tmp_path: Path, extras: str) -> None:
    text = written(tmp_path, "--with", extras)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert error is None, repr(error)
    assert written(tmp_path, "--with", extras) == text


def test_it_has_each_package_of_the_installation_with_its_hashes_and_licence(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = json.loads(written(tmp_path))["components"]
    by_name = {each["name"]: each for each in found}
    pins = {pin.name: pin for pin in environment.read_lock(LOCK.read_text())}
    assert "django" in by_name
    assert not by_name.keys() & {"pytest", "mypy", "botocore"}
    for name, each in by_name.items():
        assert each["version"] == pins[name].version == metadata.version(name)
        assert {f"sha256:{one['content']}" for one in each["hashes"]} == set(pins[name].hashes)
        assert each["licenses"], name
    assert "botocore" in {each["name"] for each in json.loads(written(tmp_path, "--with", "bedrock"))["components"]}


def test_every_package_is_reached_from_the_application(tmp_path: Path) -> None:
    made = json.loads(written(tmp_path, "--with", "all"))
    needs = {each["ref"]: each["dependsOn"] for each in made["dependencies"]}
    assert made["metadata"]["component"]["bom-ref"] == APPLICATION
    reached, left = set(), [APPLICATION]
    while left:
        reached.add(one := left.pop())
        left += [each for each in needs[one] if each not in reached]
    assert reached - {APPLICATION} == {each["bom-ref"] for each in made["components"]}


def test_an_extra_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main(["--with", "bedrok"]) == 1
    assert "there is no extra bedrok; there are bedrock," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "other")], [{"expression": "MIT OR Apache-2.0"}]),
        ([("Classifier", "License :: OSI Approved :: MIT License")], [{"license": {"id": "MIT"}}]),
        (
            [("Classifier", "License :: OSI Approved :: BSD License"), ("License", "BSD-3-Clause")],
            [{"license": {"id": "BSD-3-Clause"}}],
        ),
        ([("Classifier", "License :: OSI Approved :: BSD License")], [{"license": {"name": "BSD License"}}]),
        ([("License", "Terms of ours")], [{"license": {"name": "Terms of ours"}}]),
        ([("License", "The whole text\nof a licence")], []),
        ([("Classifier", "License :: OSI Approved")], []),
    ],
)
def test_licences_are_what_the_package_says(fields: list[tuple[str, str]], expected: list[object]) -> None:
    package = Message()
    for name, value in fields:
        package[name] = value
    assert sbom.licences(cast(metadata.PackageMetadata, package)) == expected
