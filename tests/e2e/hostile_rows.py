"""Rows with hostile texts in every field that a page of the admin shows. Used in a process with a server's settings."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from agents_app import exact_json
from sessions_app.core.log import journal
from sessions_app.core.tenancy import audit, keys
from sessions_app.models import (
    AgentsOfProcess,
    ApiKey,
    AuditRecord,
    CallState,
    Compaction,
    ModelUse,
    Session,
    Tenant,
    TenantDeletion,
    Terminal,
    TerminalScreen,
    TurnState,
    Webhook,
    WebhookDelivery,
    Workspace,
)
from tests.faces.admin.conversations import call, call_block, make_session, make_tenant, make_turn, say, text_block
from tests.faces.admin.pages import address, patterns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVIL = (
    "<script>window.owned=1</script><img src=x onerror=window.owned=1>\"'`${window.owned=1}{{7*7}}"
    "\u202edesrever\u2066 \x1b[31mred\x1b]0;title\x07 javascript:window.owned=1 http://127.0.0.1:9/x.png"
)
WORD = "W" * 100_000
_LINKS = "[go](javascript:window.owned=1) ![x](http://127.0.0.1:9/pixel.png)"
MARKDOWN = f"# {EVIL}\n\n{_LINKS}\n\n| a | b |\n|---|---|\n| {WORD[:3000]} | x |"


_NO_PAGES = frozenset(
    {
        "login",
        "logout",
        "app_list",
        "view_on_site",
        "jsi18n",
        "autocomplete",
        "agents_check",
        "sessions_app_session_live",
        "sessions_app_auditrecord_download",
        "sessions_app_tenantdeletion_certificate",
    }
)
"""Redirects, data and files."""


def fill() -> list[str]:
    """Make the rows; returns the address of every page that shows one."""
    tenant = make_tenant("hostile")
    Tenant.objects.filter(pk=tenant.pk).update(title=f"{EVIL[:120]}{WORD[:80]}"[:200])
    issued = keys.issue(tenant, name="k", scopes=["*"], expires_at=None, allowed_agents=None, actor=EVIL[:100])
    ApiKey.objects.filter(pk=issued.key.pk).update(name=f"{EVIL[:120]}{WORD[:80]}"[:200])
    session = make_session(tenant, agent_name=EVIL[:180], title=f"{EVIL}{WORD[:2000]}", created_by=issued.key)
    journal.create_tail(session.pk)
    _talk(session)
    rows: dict[str, Any] = {
        "tenant": tenant,
        "apikey": issued.key,
        "session": session,
        "tenantdeletion": TenantDeletion.objects.create(
            tenant_id=tenant.pk + 10_000, public_id="del_x", slug="gone", requested_by=EVIL[:200], counts='{"session": 3}'
        ),
        "workspace": Workspace.objects.create(
            tenant=tenant,
            public_id="ws_x",
            root=f"file:///{EVIL[:200]}",
            private=False,
            used_at=NOW,
            changed_at=NOW,
            created_at=NOW,
        ),
        "user": _user(),
        **_others(tenant, session),
    }
    audit.record(actor=EVIL, action=audit.Action.KEY_ISSUED, target=EVIL + WORD[:300], tenant=tenant, detail=f"{EVIL}{WORD}")
    rows["auditrecord"] = AuditRecord.objects.latest("pk")
    AgentsOfProcess.objects.create(
        process="x", role="web", host=EVIL[:190], pid=1, digest="0" * 64, loaded_at=timezone.now(), tried_at=timezone.now(),
        seen_at=timezone.now() + timedelta(hours=1), fault=f"{EVIL}\n{WORD[:3000]}",
    )  # fmt: skip
    pages = [address(name, rows) for name in sorted(set(patterns())) if name not in _NO_PAGES and not _is_refused(name)]
    found = f"/admin/sessions_app/session/{session.pk}/change/"
    return [*pages, "/admin/sessions_app/session/?words=owned", f"{found}?message=2", f"{found}?message=999"]


def _is_refused(name: str) -> bool:
    """Django's own pages that the admin has switched off."""
    is_ours = name.startswith("sessions_app_")
    adds = ("sessions_app_tenant_add", "sessions_app_apikey_add")
    return name.endswith("_workspace_export") or (
        is_ours and (name.endswith("_delete") or (name.endswith("_add") and name not in adds))
    )


def _talk(session: Session) -> None:
    failure = {"kind": "unavailable", "provider": EVIL, "host": EVIL, "code": EVIL, "attempts": 2, "after_output": False}
    turn = make_turn(session, TurnState.ERROR, error="provider_failed", failure=exact_json.dumps(failure), step=1)
    say(session, "user", [text_block(MARKDOWN), {"type": "image", "url": f"http://127.0.0.1:9/{EVIL}"}], turn)
    blocks = [{"type": "thinking", "thinking": EVIL}, text_block(WORD), call_block("c1", EVIL[:60], {EVIL: WORD[:5000]})]
    say(session, "assistant", blocks, turn, step=1)
    call(session, turn, "c1", EVIL[:60], state=CallState.DONE, failed=True, decided_by=EVIL[:60], reason=EVIL)
    say(session, "tool", f"{EVIL}{WORD[:2000]}", turn, tool_call_id="c1", step=1)
    say(session, "system", MARKDOWN, turn)
    Compaction.objects.create(session=session, tenant=session.tenant, covers_through=1, summary=MARKDOWN, created_at=NOW)
    Session.objects.filter(pk=session.pk).update(
        client_tools=json.dumps([{"name": EVIL[:60]}]), tool_refs=json.dumps([{"name": EVIL[:60]}])
    )


def _others(tenant: Tenant, session: Session) -> dict[str, Any]:
    webhook = Webhook.objects.create(tenant=tenant, public_id="wh_x", url=f"https://x/{EVIL}", description=EVIL[:200])
    terminal = Terminal.objects.create(
        tenant=tenant, public_id="term_x", uri=f"t:/{EVIL[:200]}", claim=exact_json.dumps({"client": EVIL}), line=1, cols=80,
        rows=24, state="exited", requested_at=NOW, title=EVIL, cwd=EVIL, command=EVIL,
    )  # fmt: skip
    parts = [{"text": EVIL + WORD}, {"text": EVIL, "command": "1", "line": EVIL, "at": 1, "done": True, "code": 2, "ms": 5}]
    TerminalScreen.objects.create(terminal=terminal, content=exact_json.dumps(parts), detects=True)
    return {
        "webhook": webhook,
        "webhookdelivery": WebhookDelivery.objects.create(
            tenant=tenant,
            webhook=webhook,
            event="evt_x",
            type="turn.ended",
            body=json.dumps({"x": EVIL + WORD}),
            public_id="dlv_x",
            until=NOW,
            answer=EVIL + WORD[:2000],
            status=500,
        ),
        "terminal": terminal,
        "modeluse": ModelUse.objects.create(
            tenant_id=tenant.pk,
            day="2026-01-01",
            session=session.public_id,
            agent=EVIL[:100],
            model=EVIL[:100],
            purpose="turn",
            calls=1,
            input_tokens=1,
            output_tokens=1,
            cache_read_tokens=0,
        ),
    }


def _user() -> Any:
    from django.contrib.auth.models import User

    return User.objects.create_user("somebody", first_name=EVIL[:100], last_name=WORD[:100])
