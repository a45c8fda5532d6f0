"""The webhooks of a tenant: making, changing, rotating secrets, deliveries with their answers, repeating, deleting."""

from __future__ import annotations

from dataclasses import dataclass

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from sessions_app.accounts.people import actor, address
from sessions_app.console import paging
from sessions_app.console.pages import confirm_page, tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.tenancy import rights, webhooks
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.core.tenancy.webhooks import Made
from sessions_app.models import Tenant, Webhook, WebhookDelivery
from sessions_app.presentation.content import Excerpt, cut, pretty

_form_methods = require_http_methods(["GET", "HEAD", "POST"])
_BODY_SHOWN = 4000
_TEXTS = {
    webhooks.TURN_ENDED: "a turn has ended, with its outcome",
    webhooks.TURN_WAITING: "a turn waits for its client",
    webhooks.QUOTA_REACHED: "a limit of the tenant is reached",
    webhooks.KEY_EXPIRING: "a key expires within 7 days, and within a day",
}


class WebhookForm(forms.Form):
    url = forms.CharField(label="Address", max_length=2000, help_text="Of your server, such as https://example.com/agenthost.")
    types = forms.MultipleChoiceField(
        label="Events",
        choices=[(name, f"{name} – {_TEXTS[name]}") for name in webhooks.TYPES],
        widget=forms.CheckboxSelectMultiple,
        initial=[webhooks.TURN_ENDED, webhooks.TURN_WAITING],
    )
    description = forms.CharField(required=False, max_length=200, label="Description (optional)")


class ChangeForm(WebhookForm):
    enabled = forms.BooleanField(
        required=False, help_text="A webhook that is enabled again gets what happens from then on, not what it has missed."
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """A webhook for the templates."""

    row: Webhook

    @property
    def state(self) -> str:
        if self.row.disabled_at is not None:
            return "disabled"
        return "failing" if self.row.failing_since is not None else "enabled"


@dataclass(frozen=True, slots=True)
class ShownDelivery:
    row: WebhookDelivery
    body: Excerpt


@require_safe
@for_members
def index(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_WEBHOOKS)
    context = {"webhooks": [Shown(row) for row in webhooks.of_tenant(tenant.pk)]}
    return tenant_page(request, by, tenant, "webhooks", "agenthost/console/webhooks.html", context)


@sensitive_variables()
@_form_methods
@for_members
def new(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.MANAGE_WEBHOOKS)
    form = WebhookForm(request.POST or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                made = webhooks.create(
                    tenant.pk,
                    url=form.cleaned_data["url"],
                    types=form.cleaned_data["types"],
                    description=form.cleaned_data["description"],
                    actor=actor(request),
                    address=address(request),
                )
            except InvalidInput as error:
                _add_faults(form, error)
            except NotPossible as error:
                form.add_error(None, f"{str(error)[:1].upper()}{str(error)[1:]}.")
                status = 409
            else:
                return _show_once(request, by, tenant, made)
    back = reverse("console:webhooks", args=[slug])
    return confirm_page(
        request,
        by,
        tenant,
        "webhooks",
        title="A new webhook",
        text="This server sends a signed POST to the address when something happens. The secret that signs is shown once.",
        button="Make the webhook",
        back=back,
        form=form,
        status=status,
    )


@require_safe
@for_members
def one(request: HttpRequest, by: Account, slug: str, webhook: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_WEBHOOKS)
    row = webhooks.find(tenant.pk, webhook)
    listed = paging.page(
        request, lambda before, most: webhooks.deliveries(row, before=before, most=most), lambda delivery: delivery.pk
    )
    context = {
        "webhook": Shown(row),
        "secrets": webhooks.expiries(row),
        "listed": listed,
        "deliveries": [ShownDelivery(each, cut(pretty(each.body), _BODY_SHOWN)) for each in listed.rows],
    }
    return tenant_page(request, by, tenant, "webhooks", "agenthost/console/webhook.html", context)


@_form_methods
@for_members
def change(request: HttpRequest, by: Account, slug: str, webhook: str) -> HttpResponse:
    tenant, row, back = _managed(by, slug, webhook)
    initial = {"url": row.url, "types": row.types, "description": row.description, "enabled": row.disabled_at is None}
    form = ChangeForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            webhooks.change(
                row,
                url=form.cleaned_data["url"],
                types=form.cleaned_data["types"],
                description=form.cleaned_data["description"],
                enabled=form.cleaned_data["enabled"],
                actor=actor(request),
                address=address(request),
            )
        except InvalidInput as error:
            _add_faults(form, error)
        else:
            messages.success(request, "The webhook was changed.")
            return HttpResponseRedirect(back)
    return confirm_page(
        request,
        by,
        tenant,
        "webhooks",
        title=f"Change {row.public_id}",
        text="The change counts for what is sent from now on.",
        button="Save",
        back=back,
        form=form,
        status=422 if form.is_bound else 200,
    )


@sensitive_variables()
@_form_methods
@for_members
def rotate(request: HttpRequest, by: Account, slug: str, webhook: str) -> HttpResponse:
    tenant, row, back = _managed(by, slug, webhook)
    if request.method == "POST":
        return _show_once(request, by, tenant, webhooks.rotate(row, actor=actor(request), address=address(request)))
    return confirm_page(
        request,
        by,
        tenant,
        "webhooks",
        title=f"A new secret for {row.public_id}?",
        text="It is shown once. For a day both secrets sign, so that your server can change over; older ones stop at once.",
        button="Make a new secret",
        back=back,
    )


@require_POST
@for_members
def test(request: HttpRequest, by: Account, slug: str, webhook: str) -> HttpResponse:
    _, row, back = _managed(by, slug, webhook)
    delivery = webhooks.send_test(row)
    messages.success(request, f"The event {delivery.event} is being sent. Its answer appears below; reload in a moment.")
    return HttpResponseRedirect(back)


@require_POST
@for_members
def repeat(request: HttpRequest, by: Account, slug: str, webhook: str, delivery: str) -> HttpResponse:
    _, row, back = _managed(by, slug, webhook)
    webhooks.repeat(row, delivery)
    messages.success(request, f"{delivery} is being sent again.")
    return HttpResponseRedirect(back)


@_form_methods
@for_members
def delete(request: HttpRequest, by: Account, slug: str, webhook: str) -> HttpResponse:
    tenant, row, back = _managed(by, slug, webhook)
    if request.method != "POST":
        return confirm_page(
            request,
            by,
            tenant,
            "webhooks",
            title=f"Delete {row.public_id}?",
            text=f"Nothing more is sent to {row.url}. Its deliveries are deleted with it; the audit keeps that it existed.",
            button="Delete",
            back=back,
            danger=True,
        )
    webhooks.delete(row, actor=actor(request), address=address(request))
    messages.success(request, f"{row.public_id} was deleted.")
    return HttpResponseRedirect(reverse("console:webhooks", args=[slug]))


def _managed(by: Account, slug: str, webhook: str) -> tuple[Tenant, Webhook, str]:
    tenant = rights.own_tenant(by, slug, Right.MANAGE_WEBHOOKS)
    return tenant, webhooks.find(tenant.pk, webhook), reverse("console:webhook", args=[slug, webhook])


def _add_faults(form: forms.Form, error: InvalidInput) -> None:
    for fault in error.faults:
        form.add_error(str(fault.path[0]), f"{fault.detail[:1].upper()}{fault.detail[1:]}.")


@sensitive_variables()
def _show_once(request: HttpRequest, by: Account, tenant: Tenant, made: Made) -> HttpResponse:
    """The response to the POST itself: for a redirect the secret would have to be stored somewhere."""
    context = {"webhook": Shown(made.webhook), "secret": made.secret}
    return tenant_page(request, by, tenant, "webhooks", "agenthost/console/webhook_secret.html", context)
