"""How this code was installed: as a checkout (or the image that is made from one), or as a package with pip.

It decides where data goes and how commands are written in messages. Standard library only.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout; of a package, the directory of all packages."""
IS_CHECKOUT = (ROOT / "ops" / "entrypoint").is_file()
DISTRIBUTION = "agenthost"


@cache
def version() -> str:
    if IS_CHECKOUT:
        import tomllib

        project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        return project["version"]
    import importlib.metadata

    return importlib.metadata.version(DISTRIBUTION)


def data_directory() -> Path | None:
    """The embedded server's data without AGENTHOST_VAR_DIR. The same from each working directory; None without a home."""
    if IS_CHECKOUT:
        return ROOT / "var"
    given = os.environ.get("XDG_DATA_HOME", "")
    if given.startswith("/"):
        return Path(given) / DISTRIBUTION
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/share") / DISTRIBUTION


def role(name: str) -> str:
    """How a role is started."""
    return f"ops/entrypoint {name}" if IS_CHECKOUT else f"agenthost {name}"


def manage(arguments: str) -> str:
    """How a command is run: ``.venv/bin/python manage.py list_keys``, or ``agenthost list-keys``.

    Outside of the checkout's own environment ``python manage.py …``.
    """
    if not IS_CHECKOUT:
        name, *rest = arguments.split(" ", 1)
        return " ".join((DISTRIBUTION, name.replace("_", "-"), *rest))
    python = Path(sys.executable)
    shown = python.relative_to(ROOT) if python.is_relative_to(ROOT) else "python"
    return f"{shown} manage.py {arguments}"


def start() -> str:
    """The command that starts an embedded server and prints its key."""
    return "ops/quickstart" if IS_CHECKOUT else "agenthost up"


def install_extra(name: str) -> str:
    return f"run ops/bootstrap --with {name}" if IS_CHECKOUT else f"install {DISTRIBUTION}[{name}] with pip"
