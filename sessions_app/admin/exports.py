"""The admin's forms for exports of sessions and tenants."""

from __future__ import annotations

from typing import Any

from django import forms

from agents_app import installation
from sessions_app.admin import reasons
from sessions_app.core.base.errors import DomainError
from sessions_app.core.sessions.export_files import Wish
from sessions_app.core.tenancy import transcript_access
from sessions_app.presentation import export_forms

LINES, PAGE = "jsonl", "html"

SESSION_TEXT = (
    "JSON Lines have everything that is stored of the session, with images and edits; the page is for reading. Secret options "
    "are masked. Streamed pieces and other events are not in it. The export is recorded in the audit."
)
TENANT_TEXT = (
    "A zip archive with a JSON Lines file for each session, an index at its end, and pages to read if you like. A session is "
    "as it was when its turn came. Secret options are masked. An archive that was cut off cannot be opened: for very large "
    f"tenants choose some days at a time, or use {installation.manage('export_tenant')}, which continues after an "
    "interruption. The export is recorded in the audit."
)
GONE = (
    "An export has what is stored now: deleted sessions are not in it. Audit records and the counts of model use have exports "
    "of their own."
)


class SessionExportForm(forms.Form):
    form = forms.ChoiceField(
        label="Form",
        choices=[(LINES, "JSON Lines, for programs"), (PAGE, "One page, to read")],
        initial=LINES,
    )
    workspace = forms.BooleanField(label="With the files of its workspace", required=False, initial=True)

    def wish(self) -> Wish:
        is_page = self.cleaned_data["form"] == PAGE
        return Wish(pages=is_page, files=self.cleaned_data["workspace"] and not is_page)


class TenantExportForm(export_forms.TenantExportForm):
    """With the reason that the server may demand of staff."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if reasons.needed():
            self.fields["reason"] = forms.CharField(
                max_length=transcript_access.LONGEST_REASON,
                help_text="Why you export these conversations. It is stored in the audit.",
            )

    def clean_reason(self) -> str:
        try:
            return transcript_access.check_reason(self.cleaned_data["reason"])
        except DomainError as error:
            raise forms.ValidationError(str(error) or "Give a reason.") from error

    def described(self) -> str:
        """For the audit."""
        reason = self.cleaned_data.get("reason")
        return self.wish().described + (f"; reason: {reason}" if reason else "")
