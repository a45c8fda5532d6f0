"""The form of an export of a tenant, for staff and members."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms

from sessions_app.core.sessions.export_files import Wish


class TenantExportForm(forms.Form):
    pages = forms.BooleanField(label="With a page to read for each session", required=False)
    workspace = forms.BooleanField(label="With the files of workspaces", required=False, initial=True)
    since = forms.DateField(label="Sessions created from (UTC)", required=False, widget=forms.DateInput({"type": "date"}))
    until = forms.DateField(label="until (UTC)", required=False, widget=forms.DateInput({"type": "date"}))

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if found.get("since") and found.get("until") and found["since"] > found["until"]:
            raise forms.ValidationError("The first day is after the last one.")
        return found

    def wish(self) -> Wish:
        given = self.cleaned_data
        since, until = given["since"], given["until"]
        return Wish(
            pages=given["pages"],
            files=given.get("workspace", False),
            since=None if since is None else datetime.combine(since, time(), UTC),
            until=None if until is None else datetime.combine(until + timedelta(days=1), time(), UTC),
        )
