"""Pins the images of the Dockerfile and compose.yaml by digest: `python -m ops.images`, called by ops/lock --images.

The reference itself is the lock (`redis:7@sha256:…`): any registry or mirror must deliver exactly these images. It needs
docker with buildx and access to a registry; no host is named here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("Dockerfile", "ops/compose.yaml")
OWN = "agenthost:"
REFERENCE = re.compile(r"^((?:ARG PYTHON=| +image: ))([a-z][\w./-]*:[\w.-]+)(@sha256:[0-9a-f]{64})?$", re.MULTILINE)


class DigestError(Exception):
    """The digest of an image is not known."""


def references(text: str) -> dict[str, str]:
    """Image to digest ("" without one), without our own image."""
    return {match[2]: (match[3] or "").removeprefix("@") for match in REFERENCE.finditer(text) if not match[2].startswith(OWN)}


def pinned(text: str, digest_of: Callable[[str], str]) -> str:
    """The text with the newest digest behind each image."""
    digests = {image: digest_of(image) for image in references(text)}
    return REFERENCE.sub(
        lambda match: f"{match[1]}{match[2]}@{digests[match[2]]}" if match[2] in digests else match[0],
        text,
    )


def newest_digest(image: str) -> str:
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DigestError(f"{image}: docker cannot be run: {type(error).__name__}") from None
    digest = done.stdout.strip()
    if done.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise DigestError(f"{image}: docker returned no digest: {done.stderr.strip()[-300:] or digest[:100]}")
    return digest


def main() -> int:
    try:
        texts = {name: pinned((ROOT / name).read_text(), newest_digest) for name in FILES}
    except DigestError as error:
        print(f"ops/lock: {error}", file=sys.stderr)
        return 1
    for name, text in texts.items():
        (ROOT / name).write_text(text)
        print(f"ops/lock: pinned {', '.join(references(text))} in {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
