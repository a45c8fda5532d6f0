"""The addresses of the management API. Any other address below /api is a 404."""

from __future__ import annotations

from django.urls import include, path, re_path

from sessions_app.aap import problems
from sessions_app.aap.management import audit_views, key_views, member_views, session_views, use_views, views, webhook_views

ROUTES = [
    path("sessions", session_views.Sessions.as_view()),
    path("sessions/<str:session>", session_views.OneSession.as_view()),
    path("sessions/<str:session>/export", session_views.SessionExport.as_view()),
    path("export", session_views.TenantExport.as_view()),
    path("tokens", views.Tokens.as_view()),
    path("tokens/<str:token>", views.OneToken.as_view()),
    path("keys", key_views.Keys.as_view()),
    path("keys/<str:key>", key_views.OneKey.as_view()),
    path("keys/<str:key>/rotate", key_views.Rotation.as_view()),
    path("members", member_views.Members.as_view()),
    path("members/<str:member>", member_views.OneMember.as_view()),
    path("invitations", member_views.Invitations.as_view()),
    path("invitations/<str:invitation>", member_views.OneInvitation.as_view()),
    path("audit", audit_views.Audit.as_view()),
    path("overview", use_views.OverviewOfTenant.as_view()),
    path("use", use_views.UseOfTenant.as_view()),
    path("webhooks", webhook_views.Webhooks.as_view()),
    path("webhooks/<str:webhook>", webhook_views.OneWebhook.as_view()),
    path("webhooks/<str:webhook>/rotate", webhook_views.Rotation.as_view()),
    path("webhooks/<str:webhook>/test", webhook_views.Test.as_view()),
    path("webhooks/<str:webhook>/deliveries", webhook_views.Deliveries.as_view()),
    path("webhooks/<str:webhook>/deliveries/<str:delivery>/repeat", webhook_views.Repetition.as_view()),
]

urlpatterns = [
    path("api/", include(ROUTES)),
    re_path(r"^api(?:/|$)", problems.not_found),
]
