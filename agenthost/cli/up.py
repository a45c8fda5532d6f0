"""``agenthost up``, and ops/quickstart in a checkout: makes a database, tenant, key and admin, then starts the server.

It always runs the embedded server: a database or broker that the environment names is not touched. Each thing is made only
if it is missing, so the next start completes one that was interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from agents_app import installation

TENANT, KEY_NAME, ADMIN = "local", "quickstart", "admin"
ELSEWHERE = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the command prints


def _fail(text: object) -> int:
    print(f"{installation.start()}: {text}", file=sys.stderr)  # noqa: T201 - what the command prints
    return 1


def stay_embedded(port: int) -> None:
    set_elsewhere = [name for name in ELSEWHERE for name in (name, f"{name}_FILE") if os.environ.pop(name, "")]
    if set_elsewhere:
        say(f"Not using {', '.join(set_elsewhere)}: this is one process on SQLite. For those see docs/production.md.")
    os.environ.update(AGENTHOST_ROLE="embedded", AGENTHOST_PORT=str(port), DJANGO_SETTINGS_MODULE="agenthost.settings")
    os.environ.pop("AGENTHOST_PORT_FILE", None)


def refusal(host: str, port: int) -> str | None:
    """Why the server cannot listen there, or None. Checked before anything is made or printed."""
    try:
        with socket.create_server((host, port)):
            return None
    except PermissionError:
        return f"Port {port} needs root; choose one above 1023: {installation.start()} --port 8000"
    except OSError as error:
        free = next((other for other in range(port + 1, min(port + 50, 65536)) if is_free(host, other)), 0)
        hint = f"; choose another: {installation.start()} --port {free}" if free else ""
        if error.errno == errno.EADDRINUSE:
            return f"Port {port} is in use{hint}"
        return f"{host} port {port} cannot be listened on: {error.strerror or error}"


def is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def prepare(base: str) -> None:
    """Make the database, tenant, key and admin, and print how to use them."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from agents_app import registry
    from sessions_app.core.tenancy import keys, members, tenants
    from sessions_app.models import ApiKey, Member, Role

    call_command("migrate", verbosity=0, interactive=False)
    tenant, _ = tenants.create(TENANT, "This machine", actor="quickstart")
    users = get_user_model().objects
    say("")
    if not users.filter(is_superuser=True).exists():
        password = secrets.token_urlsafe(12)
        users.create_superuser(ADMIN, password=password)
        say(f"  Console   {base}/console/   user {ADMIN}, password {password}")
    else:
        say(f"  Console   {base}/console/   (forgotten: {command(f'changepassword {ADMIN}')})")
    if not Member.objects.filter(tenant=tenant).exists():
        members.add(tenant, users.filter(is_superuser=True).earliest("pk"), Role.OWNER, actor="quickstart")
    say(f"  Admin     {base}/admin/   the same user: all tenants of this server")
    say(f"  Protocol  {base}/aap/v3   described at {base}/docs/   health: {base}/readyz")
    first = ApiKey.objects.filter(tenant=tenant).order_by("created_at").first()
    if first is None:
        issued = keys.issue(tenant, name=KEY_NAME, scopes=["*"], expires_at=None, allowed_agents=None, actor="quickstart")
        say(f"  Key       {issued.raw}")
        say("            Keep it: it is shown only now. The admin's password too.")
        raw = issued.raw
    else:
        say(f"  Key       was shown at the first start, {first.created_at:%Y-%m-%d %H:%M} UTC; it began with {first.prefix}…")
        say(f"            a new one: {command(f'create_key {TENANT} --name mine')}")
        raw = "YOUR_KEY"
    say("")
    say("Talk to it from another terminal:")
    say("")
    agents = registry.agents()
    name = "demo" if "demo" in agents else next(iter(agents))
    for line in conversation(base, raw, name):
        say(f"  {line}")
    say("")
    say(f"Or chat: {command(f'chat {name}', calls_server=True)}")
    say("")


def conversation(base: str, key: str, name: str) -> list[str]:
    """Shell commands that create a session, stream a turn and show the history."""
    sessions, bearer, json = f"{base}/aap/v3/sessions", '-H "Authorization: Bearer $KEY"', "-H 'Content-Type: application/json'"
    id_alone = r"""sed -E 's/.*"sessionId": ?"([^"]+)".*/\1/'"""
    agent, message = f'{{"agent":{{"name":"{name}"}}}}', '{"messages":[{"role":"user","content":"Hello!"}],"stream":"delta"}'
    return [
        f"KEY={key}",
        f"SESSION=$(curl -s {sessions} {bearer} {json} -d '{agent}' | {id_alone}); echo $SESSION",
        f"curl -sN {sessions}/$SESSION/turns {bearer} {json} -d '{message}'",
        f'curl -s "{sessions}/$SESSION/history?type=full" {bearer}',
    ]


def command(arguments: str, *, calls_server: bool = False) -> str:
    """A command as another terminal needs it: with the data directory and the port, where they are not the default."""
    port, given = os.environ["AGENTHOST_PORT"], os.environ.get("AGENTHOST_VAR_DIR", "")
    is_elsewhere = given and Path(given).expanduser().absolute() != installation.data_directory()
    variables = [
        f"AGENTHOST_VAR_DIR={shlex.quote(given)} " if is_elsewhere else "",
        f"AGENTHOST_PORT={port} " if calls_server and port != "8000" else "",
    ]
    return "".join(variables) + installation.manage(arguments)


def serve() -> NoReturn:
    say("Starting; Ctrl-C stops it.")
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "agenthost.processes", "embedded"])  # noqa: S606 - this very program


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=installation.start(), description="A running server with a key, from scratch.")
    default = os.environ.get("AGENTHOST_PORT") or 8000
    parser.add_argument("--port", type=int, default=default, help="where it listens (default: AGENTHOST_PORT, else 8000)")
    parser.add_argument("--data", metavar="DIRECTORY", help="where its data is (default: AGENTHOST_VAR_DIR, else %(default)s)")
    parser.set_defaults(data=os.environ.get("AGENTHOST_VAR_DIR") or installation.data_directory())
    given = parser.parse_args(arguments)
    port: int = given.port
    if not 0 < port < 65536:
        parser.error("--port: a number from 1 to 65535 is needed")
    stay_embedded(port)
    if given.data:
        os.environ["AGENTHOST_VAR_DIR"] = str(Path(given.data).expanduser().absolute())
    # The database and the secrets are readable for this user only.
    os.umask(0o077)

    import django
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import call_command
    from django.core.management.base import CommandError, SystemCheckError

    try:
        django.setup()
        from django.conf import settings

        host: str = settings.AGENTHOST_HOST
        # Before a key is shown: the server would not start with a broken agents file.
        call_command("check", stdout=io.StringIO())
    except (ImproperlyConfigured, SystemCheckError) as error:
        return _fail(error)
    try:
        from agenthost import data_directory

        data_directory.lock(settings.AGENTHOST_VAR_DIR, port).close()
    except ImproperlyConfigured as error:
        return _fail(error)
    reason = refusal(host, port)
    if reason is not None:
        return _fail(reason)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host  # noqa: S104 - not bound here
    try:
        prepare(f"http://{shown}:{port}")
    except CommandError as error:
        return _fail(error)
    serve()
