"""The operator's pages: a face over the core for people who run the server.

Importing it registers the pages with Django's admin site, which finds it by its name.
"""

from django.contrib import admin

from sessions_app.admin import accounts, audit, keys, model_use, sessions, sign_in, tenants

__all__ = ["accounts", "audit", "keys", "model_use", "sessions", "sign_in", "tenants"]

admin.site.site_header = "Agenthost"
admin.site.site_title = "Agenthost"
admin.site.index_title = "Overview"
admin.site.site_url = None
