"""The admin's door over HTTP, behind a proxy that tells where people are."""

from __future__ import annotations

import re
import socket

import httpx

from tests.e2e.server import Server

RIGHT, WRONG = "correct horse battery", "wrong horse battery"
MAKE_OPERATOR = """
import sys, django
django.setup()
from django.contrib.auth.models import User
User.objects.create_superuser(sys.argv[1], password=sys.argv[2])
"""
SHOW_AUDIT = """
import sys, django
django.setup()
from sessions_app.models import AuditRecord
for row in AuditRecord.objects.filter(target=f"account {sys.argv[1]}").order_by("id"):
    print(row.action, row.address)
"""


def sign_in(server: Server, name: str, password: str, address: str) -> httpx.Response:
    with httpx.Client(base_url=server.origin(), headers={"X-Forwarded-For": address}, trust_env=False, timeout=60) as person:
        form = person.get("/admin/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)
        assert token is not None
        return person.post("/admin/login/", data={"username": name, "password": password, "csrfmiddlewaretoken": token[1]})


def test_guesses_at_the_admins_door_are_limited_and_recorded(server: Server) -> None:
    name = f"eve-{server.shape}"
    server.manage(name, RIGHT, code=MAKE_OPERATOR)
    attacker, owner = "192.0.2.66", "198.51.100.7"
    assert sign_in(server, name, RIGHT, owner).status_code == 302
    answers = [sign_in(server, name, WRONG, attacker).status_code for _ in range(10)]
    assert answers == [200] * 4 + [429] * 6
    refused = sign_in(server, name, RIGHT, attacker)
    assert refused.status_code == 429
    assert "minutes" in refused.text
    assert int(refused.headers["Retry-After"]) > 60
    # The operator, elsewhere, is not locked out.
    assert sign_in(server, name, RIGHT, owner).status_code == 302
    assert server.manage(name, code=SHOW_AUDIT).splitlines() == [
        f"account_created {socket.gethostname()}",
        f"signed_in {owner}",
        *[f"sign_in_failed {attacker}"] * 5,
        f"sign_in_locked {attacker}",
        f"signed_in {owner}",
    ]
    log = server.log_text()
    assert f"sign-in failed: account='{name}' address={attacker}" in log
    assert f"signed in: account='{name}' address={owner}" in log
    assert RIGHT not in log
    assert WRONG not in log
