"""The optional dependencies (extras in pyproject.toml): what needs each one, and how to install one that is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from agents_app import installation


@dataclass(frozen=True, slots=True)
class Extra:
    """``module`` is importable if the extra is installed; ``others`` are more modules of it that code of operators imports."""

    name: str
    module: str
    others: tuple[str, ...] = ()


_EXTRAS = (
    Extra("bedrock", "botocore"),
    Extra("oidc", "oauthlib"),
    Extra("pydantic-ai", "pydantic_ai", ("anthropic", "boto3", "google.genai", "groq", "mistralai", "openai", "pydantic_graph")),
    Extra("vertex", "google.auth"),
)
EXTRAS: Mapping[str, Extra] = {extra.name: extra for extra in _EXTRAS}

_OF_PROVIDERS: Mapping[str, str] = {"bedrock": "bedrock", "google-vertex": "vertex"}
"""The extra that each provider needs; the others need none."""


def is_installed(extra: Extra) -> bool:
    try:
        return importlib.util.find_spec(extra.module) is not None
    except (ModuleNotFoundError, ValueError):
        # A parent package is missing, or the module was blocked (None in sys.modules).
        return False


def missing_for_provider(provider: str) -> str | None:
    """What an agent's author has to install before this provider can be used; None if nothing is missing."""
    name = _OF_PROVIDERS.get(provider)
    if name is None or is_installed(EXTRAS[name]):
        return None
    return f"the provider {provider} needs the extra {name}, which is not installed: {command(name)}"


def bringing(module: str) -> str | None:
    """The name of the extra that a module belongs to, if it belongs to one."""
    for extra in _EXTRAS:
        if any(module == own or module.startswith(f"{own}.") for own in (extra.module, *extra.others)):
            return extra.name
    return None


def command(name: str) -> str:
    """How to install an extra, in the words of an error. A new image gets those that are installed here as well."""
    together = sorted({name, *(extra.name for extra in _EXTRAS if is_installed(extra))})
    return f"{installation.install_extra(name)}, or build the image with --build-arg EXTRAS={','.join(together)}"


def how_to_get(module: str) -> str:
    """What to do about a module of no extra that an operator's own code imports, in the words of an error."""
    return (
        f"it needs the module {module}, which is not installed: install the package that has it with"
        f" {'.venv/bin/python -m ' if installation.IS_CHECKOUT else ''}pip install, or in an image of your own (docs/packages.md)"
    )
