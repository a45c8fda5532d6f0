"""The admin: web pages for operators. Django's admin site imports this package by its name, which registers the pages."""

from django.contrib import admin

from sessions_app.accounts.people import account
from sessions_app.admin import (
    accounts,
    agents,
    audit,
    deletions,
    keys,
    model_use,
    sessions,
    tenants,
    terminals,
    webhooks,
    workspaces,
)

__all__ = [
    "accounts",
    "agents",
    "audit",
    "deletions",
    "keys",
    "model_use",
    "sessions",
    "tenants",
    "terminals",
    "webhooks",
    "workspaces",
]

admin.site.has_permission = lambda request: account(request).is_staff  # type: ignore[method-assign]
admin.site.get_urls = agents.with_pages(admin.site.get_urls)  # type: ignore[method-assign]
admin.site.get_app_list = agents.listed(admin.site.get_app_list)  # type: ignore[method-assign]
admin.site.site_header = "Agenthost"
admin.site.site_title = "Agenthost"
admin.site.index_title = "Overview"
admin.site.site_url = None
admin.site.index_template = "agenthost/overview.html"
