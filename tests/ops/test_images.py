"""The images' lock: what `ops/lock --images` writes, with a docker that answers from a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops import check_container, images

DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


@pytest.mark.parametrize("name", images.FILES)
def test_every_image_that_is_not_ours_is_found_and_pinned(name: str) -> None:
    text = (images.ROOT / name).read_text()
    found = images.references(text)
    assert found
    assert not any(image.startswith("agenthost") for image in found)
    pinned = images.pinned(text, lambda _: DIGEST)
    assert images.references(pinned) == dict.fromkeys(found, DIGEST)
    # Pinned again it takes the newest, and nothing else of the file changes.
    again = images.pinned(pinned, lambda _: OTHER)
    assert again == pinned.replace(DIGEST, OTHER)
    assert len(again.splitlines()) == len(text.splitlines())


def test_what_is_pinned_is_sound() -> None:
    compose = images.pinned((images.ROOT / "ops" / "compose.yaml").read_text(), lambda _: DIGEST)
    assert check_container.compose_faults(compose) == []
    let_in = {line[1:] for line in (images.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    dockerfile = images.pinned((images.ROOT / "Dockerfile").read_text(), lambda _: DIGEST)
    assert check_container.dockerfile_faults(dockerfile, let_in) == []


def docker(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = directory / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_the_digest_is_what_docker_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(tmp_path, f'[ "$6" = redis:7 ] && echo {DIGEST}', monkeypatch)
    assert images.newest_digest("redis:7") == DIGEST


@pytest.mark.parametrize("script", ["echo no such image >&2; exit 1", "echo", "echo sha256:short"])
def test_without_an_answer_nothing_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    docker(tmp_path, script, monkeypatch)
    with pytest.raises(images.DigestError, match="redis:7"):
        images.newest_digest("redis:7")


def test_without_docker_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(images.DigestError, match="docker"):
        images.newest_digest("redis:7")
