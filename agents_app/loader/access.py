"""Reads rules of access to files: ``[[agents.access]]`` of an agent, and ``[[access]]`` of the whole server."""

from __future__ import annotations

from agents_app import access_rules
from agents_app.access_rules import DECISIONS, OPERATIONS, SUBJECTS, AccessRule, Operation, Subject
from agents_app.loader.table import Table

_FILES: tuple[Operation, ...] = ("read", "write")
_AGENT: tuple[Subject, ...] = ("agent",)


def read(table: Table) -> tuple[AccessRule, ...]:
    found: list[AccessRule] = []
    for number, entry in enumerate(table.tables("access")):
        if number == access_rules.MOST_RULES:
            entry.fault("", f"there are more than {access_rules.MOST_RULES} rules")
            break
        rule = _rule(entry)
        if rule is not None:
            found.append(rule)
    return tuple(found)


def _rule(entry: Table) -> AccessRule | None:
    paths = entry.texts("paths")
    decision = entry.word("decision", DECISIONS, required=True)
    operations = entry.words("operations", OPERATIONS, _FILES)
    subjects = entry.words("applies_to", SUBJECTS, _AGENT)
    entry.refuse_unknown()
    if not entry.has("paths"):
        entry.fault("paths", 'is required: a list of patterns, such as ["**/.env", "/secrets/**"]')
    elif paths is not None and not 1 <= len(paths) <= access_rules.MOST_PATTERNS:
        entry.fault("paths", f"must have 1 to {access_rules.MOST_PATTERNS} patterns")
    for key, values in (("operations", operations), ("applies_to", subjects)):
        if not values:
            entry.fault(key, "must not be empty")
    sound = True
    for pattern in paths or ():
        if (reason := access_rules.fault(pattern)) is not None:
            entry.fault("paths", f"{pattern!r}: {reason}")
            sound = False
    if decision == "ask" and "client" in subjects and "run" in operations:
        entry.fault("decision", "clients cannot be asked for run: a terminal is allowed or denied")
    if not paths or decision is None or not sound:
        return None
    return AccessRule(paths, decision, operations, subjects)
