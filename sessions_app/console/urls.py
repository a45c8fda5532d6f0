"""The pages at /console/."""

from __future__ import annotations

from django.urls import path

from sessions_app.console import audit, exports, keys, members, playground, sessions, start, use, webhooks

app_name = "console"

urlpatterns = [
    path("", start.home, name="home"),
    path("<slug:slug>/", start.tenant, name="tenant"),
    path("<slug:slug>/keys/", keys.index, name="keys"),
    path("<slug:slug>/keys/new/", keys.new, name="new_key"),
    path("<slug:slug>/keys/<int:number>/", keys.one, name="key"),
    path("<slug:slug>/keys/<int:number>/limits/", keys.limits, name="key_limits"),
    path("<slug:slug>/keys/<int:number>/rotate/", keys.rotate, name="rotate_key"),
    path("<slug:slug>/keys/<int:number>/revoke/", keys.revoke, name="revoke_key"),
    path("<slug:slug>/sessions/", sessions.index, name="sessions"),
    path("<slug:slug>/sessions/<str:session>/", sessions.one, name="session"),
    path("<slug:slug>/sessions/<str:session>/token/", sessions.token, name="session_token"),
    path("<slug:slug>/sessions/<str:session>/export/", sessions.export, name="export_session"),
    path("<slug:slug>/sessions/<str:session>/stop/", sessions.stop, name="stop_session"),
    path("<slug:slug>/sessions/<str:session>/delete/", sessions.delete, name="delete_session"),
    path("<slug:slug>/export/", exports.tenant, name="export_tenant"),
    path("<slug:slug>/use/", use.page, name="use"),
    path("<slug:slug>/use/file/", use.download, name="use_file"),
    path("<slug:slug>/webhooks/", webhooks.index, name="webhooks"),
    path("<slug:slug>/webhooks/new/", webhooks.new, name="new_webhook"),
    path("<slug:slug>/webhooks/<str:webhook>/", webhooks.one, name="webhook"),
    path("<slug:slug>/webhooks/<str:webhook>/change/", webhooks.change, name="change_webhook"),
    path("<slug:slug>/webhooks/<str:webhook>/rotate/", webhooks.rotate, name="rotate_webhook"),
    path("<slug:slug>/webhooks/<str:webhook>/test/", webhooks.test, name="test_webhook"),
    path("<slug:slug>/webhooks/<str:webhook>/delete/", webhooks.delete, name="delete_webhook"),
    path("<slug:slug>/webhooks/<str:webhook>/deliveries/<str:delivery>/repeat/", webhooks.repeat, name="repeat_delivery"),
    path("<slug:slug>/members/", members.tenant, name="members"),
    path("<slug:slug>/playground/", playground.page, name="playground"),
    path("<slug:slug>/playground/token/", playground.token, name="playground_token"),
    path("<slug:slug>/audit/", audit.index, name="audit"),
    path("<slug:slug>/audit/file/", audit.download, name="audit_file"),
    path("<slug:slug>/invite/", members.invite, name="invite"),
    path("<slug:slug>/invitations/<int:invitation_id>/withdraw/", members.withdraw, name="withdraw"),
    path("<slug:slug>/members/<int:member_id>/", members.change, name="member"),
    path("<path:rest>", start.nothing, name="nothing"),
]
