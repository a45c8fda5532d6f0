"""Output and exit code of manage.py doctor."""

from __future__ import annotations

import json
from pathlib import Path

from ops.services import free_port
from tests.wiring.test_command_line import manage
from tests.wiring.test_processes import SECRETS


def test_doctor_on_a_new_embedded_installation_before_and_after_its_first_start(tmp_path: Path) -> None:
    first = manage(tmp_path, "doctor")
    assert first.returncode == 1
    assert "FAIL     schema     The database was never migrated. Run: ops/entrypoint migrate" in first.stdout.splitlines()
    assert manage(tmp_path, "migrate").returncode == 0
    well = manage(tmp_path, "doctor")
    assert well.returncode == 0, well.stdout
    assert "FAIL" not in well.stdout
    assert well.stderr == ""


def test_doctor_works_when_everything_is_down_and_prints_no_password(tmp_path: Path) -> None:
    urls = {
        "DATABASE_URL": f"postgres://user:hush-hush@127.0.0.1:{free_port()}/agenthost",
        "REDIS_URL": f"redis://:hush-hush@127.0.0.1:{free_port()}/0",
    }
    done = manage(tmp_path, "doctor", "--json", **urls, **SECRETS)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["ok"] is False
    failed = {check["check"] for check in document["checks"] if check["state"] == "fail"}
    assert {"database", "redis"} <= failed
    assert "hush-hush" not in done.stdout + done.stderr
    assert SECRETS["AGENTHOST_SECRET_KEY"] not in done.stdout + done.stderr


def test_invalid_settings_are_a_finding(tmp_path: Path) -> None:
    done = manage(tmp_path, "doctor", REDIS_URL="redis://127.0.0.1/0")
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL     settings   AGENTHOST_SECRET_KEY and AGENTHOST_KEY_RING must be set")
    machine = manage(tmp_path, "doctor", "--json", AGENTHOST_PORT="many")
    assert json.loads(machine.stdout)["checks"][0]["detail"].startswith("AGENTHOST_PORT")
