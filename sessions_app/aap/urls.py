"""AAP's URLs, each version under its own base (A1). Included at the root; any other address below /aap is a 404."""

from __future__ import annotations

from django.urls import include, path, re_path

from sessions_app.aap import problems, views

_V3 = [
    path("meta", views.Meta.as_view()),
    path("sessions", views.Sessions.as_view()),
    path("sessions/<str:session_id>", views.OneSession.as_view()),
    path("sessions/<str:session_id>/history", views.History.as_view()),
    path("sessions/<str:session_id>/turns", views.Turns.as_view()),
    path("sessions/<str:session_id>/events/stream", views.EventStream.as_view()),
    path("sessions/<str:session_id>/cancel", views.Cancel.as_view()),
]

urlpatterns = [
    path("aap/v3/", include(_V3)),
    path("aap/v2/", include("sessions_app.aap.versions.v2")),
    path("aap/v1/", include("sessions_app.aap.versions.v1")),
    re_path(r"^aap(?:/|$)", problems.not_found),
]
