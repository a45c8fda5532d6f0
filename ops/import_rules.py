"""Which module may import which library: what the import contract in pyproject.toml cannot say.

The contract's tool sees a library as a whole. Here are the rules about a part of one (`django.http`, not `django`), and those of
the kind "only this module": each library with a way into the core has one door there. And which modules of the core may
open a transaction that appends to the journal.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Rule:
    """Below `where`, `what` is imported by `only` alone; by nobody if that is empty."""

    where: str
    what: str
    why: str
    only: str = ""


RULES = (
    Rule("sessions_app/core", "django.http", "the core knows no face's framework"),
    Rule("sessions_app/core", "rest_framework", "the core knows no face's framework"),
    Rule("sessions_app/core", "channels.generic", "the core knows no face's framework"),
    Rule(
        "sessions_app/core", "channels", "only core.log.broadcast uses the channel layer", only="sessions_app/core/log/broadcast/"
    ),
    Rule("sessions_app/core", "celery", "only core.turns.tasks knows Celery", only="sessions_app/core/turns/tasks.py"),
    Rule("sessions_app", "asgiref.sync.sync_to_async", "the ORM has one door for loops", "sessions_app/core/base/database.py"),
    Rule("agenthost", "asgiref.sync.sync_to_async", "the ORM has one door for loops"),
)

_WRITERS = {
    "records": ("clients", "dispatches", "session_changes", "summary_queue"),
    "sessions": ("connections", "creating", "deleting", "forms", "inbox", "truncating"),
    "tenancy": ("agent_listings",),
    "turns": ("calls", "following", "queue", "starting", "stopping"),
}
TRANSACTIONS = frozenset(f"sessions_app/core/{layer}/{name}.py" for layer, names in _WRITERS.items() for name in names)
"""The modules that open `journal.transaction`. Such a transaction holds its tenant's counter from its last statement on, so
each one has been looked at; other modules call a function of these."""


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every imported name with its full path; names of the module's own package (relative imports) are no concern."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def transactions(tree: ast.Module) -> Iterator[int]:
    """The lines that open `journal.transaction`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "journal.transaction":
            yield node.lineno


def faults(name: str, text: str) -> list[str]:
    return [*_imports(name, text), *_transactions(name, text)]


def _transactions(name: str, text: str) -> list[str]:
    lines = list(transactions(ast.parse(text)))
    if name in TRANSACTIONS:
        return [] if lines else [f"{name}: opens no journal.transaction any more: take it off ops/import_rules.py"]
    return [f"{name}:{line}: opens journal.transaction: only those in ops/import_rules.py may" for line in lines]


def _imports(name: str, text: str) -> list[str]:
    rules = [rule for rule in RULES if name.startswith(rule.where + "/") and not (rule.only and name.startswith(rule.only))]
    return [
        f"{name}:{line}: imports {full}: {rule.why}"
        for line, full in imported(ast.parse(text))
        for rule in rules
        if full == rule.what or full.startswith(rule.what + ".")
    ]


def main() -> int:
    found: list[str] = []
    for top in sorted({rule.where.partition("/")[0] for rule in RULES}):
        for path in sorted((ROOT / top).rglob("*.py")):
            found += faults(path.relative_to(ROOT).as_posix(), path.read_text())
    found += [f"{name}: is in TRANSACTIONS and does not exist" for name in sorted(TRANSACTIONS) if not (ROOT / name).exists()]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
