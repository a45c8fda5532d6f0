"""The forms of API keys: making one, and rotating it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, time
from typing import Any

from django import forms
from django.utils import timezone

from sessions_app.presentation.fields import LIFETIMES, OVERLAPS, AgentsField, LimitsForm, ScopesField, offer_agents


class NewKeyForm(LimitsForm):
    """Name, scopes, expiry, agents and limits."""

    name = forms.CharField(max_length=200, help_text="The purpose of the key, shown in lists and in the audit log.")
    scopes = ScopesField(initial=["meta:read", "sessions:read", "sessions:write"])
    expires = forms.ChoiceField(
        choices=[(value, text) for value, (text, _) in LIFETIMES.items()], required=False, initial="90d", label="Expires"
    )
    expires_on = forms.DateField(
        required=False,
        label="or at the end of this day",
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="In UTC. A day given here replaces the choice above.",
    )
    allowed_agents = AgentsField(help_text="None checked: every agent that the tenant may use.")

    def __init__(self, *args: Any, agents: Collection[str] | None = None, without: Collection[str] = (), **kwargs: Any) -> None:
        """``agents``: those that are offered; None: all of the server. ``without``: scopes that are not offered."""
        super().__init__(*args, **kwargs)
        scopes: Any = self.fields["scopes"]
        scopes.choices = [(scope, text) for scope, text in scopes.choices if scope not in without]
        offer_agents(self, only=agents)

    def clean_expires_on(self) -> datetime | None:
        chosen = self.cleaned_data["expires_on"]
        if chosen is None:
            return None
        end = datetime.combine(chosen, time(23, 59, 59), UTC)
        if end <= timezone.now():
            raise forms.ValidationError("This day is in the past.")
        return end

    @property
    def expires_at(self) -> datetime | None:
        on: datetime | None = self.cleaned_data["expires_on"]
        _, lifetime = LIFETIMES[self.cleaned_data["expires"]]
        return on or (None if lifetime is None else timezone.now() + lifetime)


class RotateForm(forms.Form):
    overlap = forms.ChoiceField(
        choices=[(value, text) for value, (text, _) in OVERLAPS.items()], initial="1d", label="The old key expires"
    )
