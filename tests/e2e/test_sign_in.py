"""Sign-in over HTTP, behind a proxy that reports client addresses."""

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


def browser(server: Server, address: str) -> httpx.Client:
    return httpx.Client(base_url=server.origin(), headers={"X-Forwarded-For": address}, trust_env=False, verify=False, timeout=60)


def send(person: httpx.Client, page: str, **fields: str) -> httpx.Response:
    """Open the page's form and send it."""
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', person.get(page).text)
    assert token is not None
    return person.post(page, data={**fields, "csrfmiddlewaretoken": token[1]})


def sign_in(server: Server, name: str, password: str, address: str) -> httpx.Response:
    with browser(server, address) as person:
        return send(person, "/accounts/login/", login=name, password=password)


def test_password_guesses_are_limited_and_recorded(server: Server) -> None:
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
    assert f"sign_in_failed account='{name}' address={attacker}" in log
    assert f"signed_in account='{name}' address={owner}" in log
    assert RIGHT not in log
    assert WRONG not in log


SHOW_ACTORS = """
import sys, django
django.setup()
from sessions_app.models import AuditRecord
for row in AuditRecord.objects.filter(target=f"account {sys.argv[1]}").order_by("id"):
    print(row.action, row.actor, row.address)
"""


def test_audit_records_of_accounts_name_the_actor(server: Server) -> None:
    name, new = f"ann-{server.shape}", f"bob-{server.shape}"
    server.manage(name, RIGHT, code=MAKE_OPERATOR)
    with browser(server, "198.51.100.8") as person:
        assert send(person, "/accounts/login/", login=name, password=RIGHT).status_code == 302
        fields = {"username": new, "password1": RIGHT, "password2": RIGHT, "usable_password": "true"}
        assert send(person, "/admin/auth/user/add/", **fields).status_code == 302
        change = {"oldpassword": "x", "password1": "y", "password2": "y"}
        assert send(person, "/accounts/password/change/", **change).status_code == 200
    assert server.manage(new, code=SHOW_ACTORS).splitlines() == [f"account_created admin:{name} 198.51.100.8"]
