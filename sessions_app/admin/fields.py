"""Form fields for what an operator grants: agents, scopes, a time to end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django import forms

from agents_app import registry
from sessions_app.core.caller import SCOPES

_SCOPE_TEXTS = {
    "meta:read": "see which agents there are",
    "sessions:read": "list and read sessions",
    "sessions:write": "create sessions, run turns, delete",
    "ahp": "connect over AHP",
    "*": "everything, also what later versions add",
}

LIFETIMES = {
    "": ("never", None),
    "7d": ("in 7 days", timedelta(days=7)),
    "30d": ("in 30 days", timedelta(days=30)),
    "90d": ("in 90 days", timedelta(days=90)),
    "365d": ("in a year", timedelta(days=365)),
}

OVERLAPS = {
    "0": ("at once", timedelta(0)),
    "1h": ("in an hour", timedelta(hours=1)),
    "1d": ("in a day", timedelta(days=1)),
    "7d": ("in 7 days", timedelta(days=7)),
    "30d": ("in 30 days", timedelta(days=30)),
}


class AgentsField(forms.MultipleChoiceField):
    """Agents by name, ticked; none ticked means all of them (None). A form calls ``offer`` when it is made."""

    widget = forms.CheckboxSelectMultiple

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("label", "Allowed agents")
        super().__init__(**kwargs)

    def offer(self, also: Iterable[str] | None = None) -> None:
        """The agents of the server now, and names that are stored already though their agent is gone."""
        agents = registry.agents()
        gone = [name for name in also or () if name not in agents]
        self.choices = [(name, f"{spec.title} ({name})" if spec.title else name) for name, spec in agents.items()] + [
            (name, f"{name} (not on this server now)") for name in gone
        ]

    def clean(self, value: Any) -> list[str] | None:
        return super().clean(value) or None

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(initial or [], data)


class ScopesField(forms.MultipleChoiceField):
    widget = forms.CheckboxSelectMultiple

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("choices", [(scope, f"{scope} – {_SCOPE_TEXTS[scope]}") for scope in SCOPES])
        super().__init__(**kwargs)


def offer_agents(form: forms.BaseForm, also: Iterable[str] | None = None) -> None:
    """Fill the form's ``allowed_agents``; agents are known only once the server has read its agents file."""
    field = form.fields["allowed_agents"]
    assert isinstance(field, AgentsField)
    field.offer(also)
