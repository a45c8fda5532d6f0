"""The addresses of the management API. Any other address below /api is a 404."""

from __future__ import annotations

from django.urls import include, path, re_path

from sessions_app.aap import problems
from sessions_app.aap.management import views

ROUTES = [
    path("tokens", views.Tokens.as_view()),
    path("tokens/<str:token>", views.OneToken.as_view()),
]

urlpatterns = [
    path("api/", include(ROUTES)),
    re_path(r"^api(?:/|$)", problems.not_found),
]
