"""export_audit: writes or sends the audit, once or continuously."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import close_old_connections

from sessions_app.core.base import syslog
from sessions_app.core.tenancy import audit, audit_export, audit_sinks
from sessions_app.core.tenancy.audit_sinks import Sink, SinkFailed
from sessions_app.management.operator import OperatorCommand

_PAUSE, _LONGEST_PAUSE = 2.0, 300.0


class Command(OperatorCommand):
    help = (
        "Writes linked audit records as JSON Lines to stdout, oldest first, each with its place in the chain and its hash, or"
        " sends them to a syslog server or webhook. --follow goes on as new ones are linked; --after continues where an earlier"
        " export ended, and --position remembers that in a file. Recorded in the audit."
    )
    examples = """
export_audit > audit.jsonl
export_audit --tenant acme --after 4711
export_audit --follow --position audit.position >> /var/log/agenthost/audit.jsonl
export_audit --follow --position siem.position --syslog tls://siem.example.org:6514
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", default="", metavar="T", help="only this tenant's records (default: all)")
        parser.add_argument("--after", type=int, default=0, metavar="N", help="only after this `link` of an earlier export")
        parser.add_argument("--follow", action="store_true", help="wait for new records, until it is interrupted")
        parser.add_argument(
            "--position", type=Path, metavar="FILE", help="continue after the link in this file, and keep it up to date"
        )
        to = parser.add_mutually_exclusive_group()
        to.add_argument(
            "--syslog", metavar="ADDRESS", help="udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT?ca=FILE or unix:///dev/log"
        )
        to.add_argument("--webhook", metavar="URL", help="signed with AGENTHOST_AUDIT_WEBHOOK_SECRET")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"]) if options["tenant"] else None
        sink, file, follow = _sink(options), options["position"], options["follow"]
        after = max(options["after"], 0 if file is None else _position(file))
        to = "stdout" if sink is None else sink.name
        audit.record(
            actor=self.actor, address=self.address, action=audit.Action.AUDIT_EXPORTED, target="audit", tenant=tenant,
            detail=f"after link {after}, to {to}{', continuously' if follow else ''}",
        )  # fmt: skip
        pause = _PAUSE
        try:
            while True:
                try:
                    while batch := list(islice(audit_export.lines(after, tenant), audit_sinks.BATCH)):
                        self._write(batch) if sink is None else sink.send(batch)
                        after, pause = batch[-1]["link"], _PAUSE
                        if file is not None:
                            _remember(file, after)
                except SinkFailed as error:
                    if not follow:
                        raise CommandError(f"{to}: {error}. Everything up to link {after} was sent.") from error
                    self.explain(f"{to}: {error}; trying again in {pause:.0f} s, after link {after}")
                    pause = min(pause * 2, _LONGEST_PAUSE)
                if not follow:
                    return
                close_old_connections()
                time.sleep(pause)
        except KeyboardInterrupt:
            return

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        for line in lines:
            self.stdout.write(json.dumps(line, ensure_ascii=False))
        self.stdout.flush()


def _sink(options: dict[str, Any]) -> Sink | None:
    if options["syslog"]:
        try:
            return audit_sinks.Syslog(syslog.read(options["syslog"]))
        except ValueError as error:
            raise CommandError(f"--syslog: the address is not valid: {error}.") from error
    if options["webhook"]:
        if not settings.AGENTHOST_AUDIT_WEBHOOK_SECRET:
            raise CommandError("--webhook needs AGENTHOST_AUDIT_WEBHOOK_SECRET: echo whsec_$(openssl rand -base64 32)")
        return audit_sinks.Webhook(options["webhook"], settings.AGENTHOST_AUDIT_WEBHOOK_SECRET)
    return None


def _position(file: Path) -> int:
    try:
        text = file.read_text().strip()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise CommandError(f"--position {file}: it cannot be read: {error.strerror}.") from error
    if not text.isdecimal():
        raise CommandError(f"--position {file}: it has no link's number. Delete it to begin with the oldest record.")
    return int(text)


def _remember(file: Path, link: int) -> None:
    """Replace the file in one step, so that a crash leaves the old position or the new one."""
    new = file.with_name(f"{file.name}.new")
    try:
        with new.open("w") as out:
            out.write(f"{link}\n")
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)
    except OSError as error:
        raise CommandError(f"--position {file}: it cannot be written: {error.strerror}.") from error
