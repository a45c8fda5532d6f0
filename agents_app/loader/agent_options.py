"""Reads the options of an agent from its file."""

from __future__ import annotations

from agents_app import spec
from agents_app.loader.table import Table
from agents_app.spec import OptionSpec


def read(table: Table) -> tuple[OptionSpec, ...]:
    found: list[OptionSpec] = []
    for entry in table.tables("options"):
        name = entry.line("name", required=True) or ""
        if "{" in name or "}" in name:
            entry.fault("name", "must not contain braces")
        elif name and any(option.name == name for option in found):
            entry.fault("name", f"there is another option of the name {name}")
        kind = entry.word("type", spec.OPTION_TYPES, required=True)
        default, choices = entry.text("default"), entry.texts("options")
        if kind == "select":
            default = _select_default(entry, default, choices)
        elif choices is not None:
            entry.fault("options", "only a select has them")
        found.append(
            OptionSpec(
                type=kind or "text",
                name=name,
                title=entry.text("title"),
                description=entry.text("description"),
                default=default or "",
                options=(choices or ()) if kind == "select" else (),
            )
        )
        entry.refuse_unknown()
    return tuple(found)


def _select_default(entry: Table, default: str | None, choices: tuple[str, ...] | None) -> str | None:
    if not choices:
        if choices is not None or not entry.has("options"):
            entry.fault("options", "a select needs at least one choice")
        return default
    if len(set(choices)) != len(choices):
        entry.fault("options", "holds a choice twice")
    if default is None and not entry.has("default"):
        return choices[0]
    if default is not None and default not in choices:
        entry.fault("default", "is not one of the options")
    return default
