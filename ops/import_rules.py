"""Import rules that the contract in pyproject.toml cannot express, and the list of modules that append to the journal.

The contract's tool knows a library only as a whole. Here are rules about a part of one (`django.http`, not `django`) and
rules of the kind "only this module imports it". A module of the core that opens a transaction which appends to the journal
must be in the list TRANSACTIONS, and only one module writes messages, tool calls and a turn's parts.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Rule:
    """In the folder `where`, only the module `only` imports `what`; if it is empty, no module does."""

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
    Rule(
        "sessions_app",
        "asgiref.sync.sync_to_async",
        "only core.base.database brings loops to the ORM",
        "sessions_app/core/base/database.py",
    ),
    Rule("agenthost", "asgiref.sync.sync_to_async", "only core.base.database brings loops to the ORM"),
)

_WRITERS = {
    "records": ("clients", "dispatches", "handshakes", "session_changes", "summary_queue"),
    "sessions": ("connections", "creating", "deleting", "forms", "inbox", "truncating"),
    "tenancy": ("agent_listings",),
    "terminals": ("changing", "creating", "disposing", "ending"),
    "turns": ("between_steps", "calls", "finishing", "queue", "reopening", "starting", "stopping"),
    "workspaces": ("watches",),
}
TRANSACTIONS = frozenset(f"sessions_app/core/{layer}/{name}.py" for layer, names in _WRITERS.items() for name in names)
"""The modules that open `journal.transaction` or call `journal.append_for_each`. Such a transaction holds its tenant's counter
from its last statement on, so each one has been looked at; other modules call a function of these."""

HISTORY = "sessions_app/core/records/history.py"
"""The one module of the core that inserts or changes messages, tool calls and `Turn.parts`. (Housekeeping deletes the rows
of deleted sessions.)"""
_HISTORY_MODELS = {"Message", "ToolCall"}
_HISTORY_MANAGERS = {"messages", "tool_calls"}
"""The related managers of these models, on a session or a turn."""
_WRITES = {"create", "bulk_create", "get_or_create", "update", "bulk_update", "update_or_create", "delete", "save"}
_HISTORY_SQL = re.compile(
    r"\b(?:insert\s+into|update|delete\s+from)\s+sessions_app_(?:message|toolcall)\b"
    r"|\bupdate\s+sessions_app_turn\s+set\b.*\bparts\s*=",
    re.IGNORECASE | re.DOTALL,
)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, full path) of every imported name, without relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def transactions(tree: ast.Module) -> Iterator[int]:
    """The lines that open `journal.transaction`, or one of `journal.append_for_each`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("journal.transaction", "journal.append_for_each"):
            yield node.lineno


def history_writes(tree: ast.Module) -> Iterator[int]:
    """The lines that insert or change messages, tool calls or a turn's parts, by SQL or by the ORM.

    A query set is followed through variables of the same module, not through functions and attributes.
    """
    models = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sessions_app.models")
        for alias in node.names
        if alias.name in _HISTORY_MODELS
    }
    names = set(models)
    while new := set(_assigned_from(tree, names)) - names:
        names |= new
    yield from (node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_history_write(node, models, names))


def _is_history_write(node: ast.expr, models: set[str], names: set[str]) -> bool:
    match node:
        case ast.Constant(value=str(sql)):
            return bool(_HISTORY_SQL.search(sql))
        case ast.JoinedStr(values=parts):
            sql = "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in parts)
            return bool(_HISTORY_SQL.search(sql))
        case ast.Call(func=ast.Name(id=name)):
            return name in models
        case ast.Call(func=ast.Attribute(value=rows, attr=method), keywords=keywords) if method in _WRITES:
            sets_parts = method == "update" and any(keyword.arg == "parts" for keyword in keywords)
            return sets_parts or _starts_at(rows, names)
    return False


def _assigned_from(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """The variables that take a query set or a row of these."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _starts_at(value, names):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _starts_at(value, names):
                yield name
            case ast.NamedExpr(target=ast.Name(id=name), value=value) if _starts_at(value, names):
                yield name
            case ast.For(target=ast.Name(id=name), iter=value) if _starts_at(value, names):
                yield name
            case ast.comprehension(target=ast.Name(id=name), iter=value) if _starts_at(value, names):
                yield name


def _starts_at(node: ast.expr, names: set[str]) -> bool:
    """Whether a chain of attributes and calls begins at one of these names, or passes a related manager of the history."""
    while True:
        match node:
            case ast.Call(func=ast.Name(id="list" | "sorted" | "iter" | "next"), args=[inner, *_]):
                node = inner
            case ast.Call(func=inner) | ast.Subscript(value=inner):
                node = inner
            case ast.Attribute(value=inner, attr=attr):
                if attr in _HISTORY_MANAGERS and isinstance(inner, ast.Name) and inner.id in ("session", "turn"):
                    return True
                if isinstance(inner, ast.Name) and inner.id == "models" and attr in _HISTORY_MODELS:
                    return True
                node = inner
            case ast.Name(id=name):
                return name in names
            case _:
                return False


def faults(name: str, text: str) -> list[str]:
    return [*_imports(name, text), *_transactions(name, text), *_history(name, text)]


def _history(name: str, text: str) -> list[str]:
    if not name.startswith("sessions_app/core/") or name == HISTORY:
        return []
    lines = sorted(set(history_writes(ast.parse(text))))
    return [f"{name}:{line}: writes messages, tool calls or a turn's parts: only {HISTORY} does" for line in lines]


def _transactions(name: str, text: str) -> list[str]:
    lines = list(transactions(ast.parse(text)))
    if name in TRANSACTIONS:
        return [] if lines else [f"{name}: does not open journal.transaction; remove it from TRANSACTIONS (ops/import_rules.py)"]
    return [f"{name}:{line}: opens journal.transaction; only modules in TRANSACTIONS (ops/import_rules.py) may" for line in lines]


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
