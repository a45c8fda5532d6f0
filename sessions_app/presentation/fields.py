"""Form fields for agents, scopes, lifetimes and limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import Field

from agents_app import registry
from sessions_app.core.base.caller import SCOPES, Limits
from sessions_app.core.tenancy import quotas
from sessions_app.models import ApiKey

_SCOPE_TEXTS = {
    "meta:read": "list the agents",
    "sessions:read": "list and read sessions, watch them over AHP",
    "sessions:write": "create sessions, run turns, delete",
    "webhooks": "manage the tenant's webhooks",
    "keys": "manage the tenant's keys, never with more scopes than this one has",
    "use": "see the tenant's use, cost and limits",
    "members": "manage the tenant's members, never with more rights than this key has",
    "export": "take sessions, or all data of the tenant, away",
    "audit": "read the tenant's audit",
    "*": "everything except members and audit, including scopes of later versions",
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
    """Checkboxes for agents; none checked means all agents (None). A form calls ``offer`` when it is created."""

    widget = forms.CheckboxSelectMultiple

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("label", "Allowed agents")
        super().__init__(**kwargs)

    def offer(self, also: Iterable[str] | None = None, only: Collection[str] | None = None) -> None:
        """Offer the server's current agents, and stored names whose agent no longer exists. ``only``: None for all agents."""
        agents = {name: spec for name, spec in registry.agents().items() if only is None or name in only}
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


class LimitsForm(forms.Form):
    """The limits of a key: one field each, empty for no limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in quotas.NAMES:
            column = quotas.column(name)
            self.fields[column] = forms.IntegerField(
                required=False,
                min_value=0,
                max_value=quotas.MOST,
                label=f"Limit: {quotas.TITLES[name]}",
                help_text=f"{_help_text(column)} Empty: only the tenant's limit applies.",
            )

    @property
    def limits(self) -> Limits:
        return Limits(**{name: self.cleaned_data[quotas.column(name)] for name in quotas.NAMES})


def _help_text(column: str) -> str:
    field = ApiKey._meta.get_field(column)
    assert isinstance(field, Field)
    return str(field.help_text)


def tenant_help_texts() -> dict[str, str]:
    """Help texts for a tenant's limits, with the server's defaults."""
    defaults = settings.AGENTHOST_QUOTAS
    return {
        quotas.column(name): f"{_help_text(quotas.column(name))} Empty: "
        + ("no limit." if defaults.get(name) is None else f"the server's default, {defaults[name]}.")
        for name in quotas.NAMES
    }


def offer_agents(form: forms.BaseForm, also: Iterable[str] | None = None, only: Collection[str] | None = None) -> None:
    """Fill the choices of ``allowed_agents`` when a form is created, because the agents file is loaded after this module."""
    field = form.fields["allowed_agents"]
    assert isinstance(field, AgentsField)
    field.offer(also, only)
