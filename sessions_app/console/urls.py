"""The pages at /console/."""

from __future__ import annotations

from django.urls import path

from sessions_app.console import members, start

app_name = "console"

urlpatterns = [
    path("", start.home, name="home"),
    path("<slug:slug>/", start.tenant, name="tenant"),
    path("<slug:slug>/members/", members.tenant, name="members"),
    path("<slug:slug>/invite/", members.invite, name="invite"),
    path("<slug:slug>/invitations/<int:invitation_id>/withdraw/", members.withdraw, name="withdraw"),
    path("<slug:slug>/members/<int:member_id>/", members.change, name="member"),
]
