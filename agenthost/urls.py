"""Addresses of the server."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from agenthost import front, health

urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("", front.page),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("docs", RedirectView.as_view(pattern_name="docs")),
    path("docs/", include("sessions_app.aap.openapi.pages")),
    path("", include("sessions_app.aap.urls")),
]

handler400 = "agenthost.failures.bad_request"
handler403 = "agenthost.failures.permission_denied"
handler404 = "agenthost.failures.not_found"
handler500 = "agenthost.failures.server_error"
