"""URL configuration."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from agenthost import health, home_page
from sessions_app.accounts import views as account_views

urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("", home_page.page),
    path("accounts", RedirectView.as_view(pattern_name="accounts:overview")),
    path("accounts/", include("sessions_app.accounts.urls")),
    path("console", RedirectView.as_view(pattern_name="console:home")),
    path("console/", include("sessions_app.console.urls")),
    path("admin/login/", account_views.admin_login),
    path("admin/logout/", RedirectView.as_view(pattern_name="account_logout")),
    path("admin/password_change/", RedirectView.as_view(pattern_name="account_change_password")),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("docs", RedirectView.as_view(pattern_name="docs")),
    path("docs/", include("sessions_app.aap.openapi.pages")),
    path("", include("sessions_app.aap.urls")),
    path("", include("sessions_app.aap.management.urls")),
]

handler400 = "agenthost.error_views.bad_request"
handler403 = "agenthost.error_views.permission_denied"
handler404 = "agenthost.error_views.not_found"
handler500 = "agenthost.error_views.server_error"
