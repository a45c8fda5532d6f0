"""The commands of the program ``agenthost``, by group. No imports of the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    OWN = auto()
    ROLE = auto()
    """A process of the server (agenthost/processes.py)."""
    MANAGEMENT = auto()
    """A management command of this project, or one of those of its libraries that operators need."""


@dataclass(frozen=True, slots=True)
class Command:
    summary: str
    kind: Kind
    usage: str = ""


def _all(kind: Kind, **summaries: str) -> dict[str, Command]:
    return {name.replace("_", "-"): Command(summary, kind) for name, summary in summaries.items()}


_MANY = " [--processes N]"
_POOL = " [--queues NAMES]" + _MANY
_GROUPED: Mapping[str, Mapping[str, Command]] = {
    "Start": {
        **_all(
            Kind.OWN,
            up="a server in one process on SQLite; the first start prints a key and what to do next",
            help="this list, or the options of a command",
            version="the installed release",
            example="files to start from: nginx, Caddy, systemd, Kubernetes, Prometheus, Grafana, seccomp",
        ),
        **_all(
            Kind.MANAGEMENT,
            chat="talk to an agent in the terminal",
            doctor="find what is wrong with this installation",
            check_agents="check an agents file, and show its agents",
        ),
    },
    "Processes of a deployment": {
        "web": Command("answers HTTP and WebSockets", Kind.ROLE, _MANY),
        "worker": Command("runs turns", Kind.ROLE, _POOL),
        **_all(
            Kind.ROLE,
            terminals="runs terminals",
            beat="housekeeping in a process of its own; without it a worker does it",
            embedded="all of them in one process, as `up` starts it",
            migrate="bring the database to this release",
        ),
        "healthy": Command("health check of the role terminals, for containers", Kind.OWN, " terminals"),
    },
    "Tenants, keys and use": _all(
        Kind.MANAGEMENT,
        create_tenant="create a tenant",
        delete_tenant="delete everything of a tenant",
        create_key="issue an API key",
        list_keys="list API keys",
        rotate_key="issue a key's successor",
        revoke_key="refuse a key from now on",
        show_usage="use and limits of a tenant",
        export_usage="use of models, as CSV",
    ),
    "People": _all(
        Kind.MANAGEMENT,
        createsuperuser="create an account that may do everything",
        changepassword="set the password of an account",
        invite="invite a person to a tenant",
        set_staff="give an account a role in the admin",
        axes_reset="end the waiting time of all failed sign-ins",
        axes_reset_ip="end that of an address",
        axes_reset_username="end that of an account",
    ),
    "Data": _all(
        Kind.MANAGEMENT,
        backup="write a backup of the database and the workspaces",
        restore="put a backup back into an empty database",
        verify_restore="check a restored database before it is used",
        export_session="write all that is stored of a session",
        export_tenant="write all sessions of a tenant",
        verify_certificate="check the certificate of a deletion",
        list_workspaces="list workspaces",
        export_workspace="write the files of a workspace",
        import_workspace="read the files of a workspace",
        ahp_tail="print a session of any AHP host as it happens",
    ),
    "Audit, secrets, settings": _all(
        Kind.MANAGEMENT,
        verify_audit="check that no audit record was changed",
        export_audit="write audit records",
        prune_audit="delete old audit records",
        reseal_secrets="encrypt stored secrets with the newest key",
        accept_keys="use a database with other keys than before",
        check="check the settings",
        showmigrations="list the migrations, and which were applied",
    ),
}
GROUPS: Mapping[str, tuple[str, ...]] = {group: tuple(commands) for group, commands in _GROUPED.items()}
COMMANDS: Mapping[str, Command] = {name: command for commands in _GROUPED.values() for name, command in commands.items()}
ALIASES: Mapping[str, str] = {"keys": "list-keys"}
