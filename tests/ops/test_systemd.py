"""The units of ops/systemd: known to systemd, confined, and in agreement with the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agenthost import env
from ops import check_kubernetes
from tests import systemd_units
from tests.paths import ROOT
from tests.systemd_units import FOLDER, SERVICES

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")
EXPOSURE = {"agenthost-terminals.service": 35}
"""The most exposure that `systemd-analyze security` may find, in tenths; of the others 15. 100 is a service without options."""


def copies(directory: Path) -> Path:
    """The units as installed, with the instances as files of their own and this checkout in the place of the installed one."""
    place = directory / "units"
    shutil.copytree(FOLDER, place)
    for path in (*place.glob("*.service"), *place.glob("*/*.conf")):
        path.write_text(path.read_text().replace("/opt/agenthost", str(ROOT)))
    for name in SERVICES:
        prefix, at, _ = name.partition("@")
        if at:
            shutil.copy(place / f"{prefix}@.service", place / name)
    return place


@needs_systemd
@pytest.mark.parametrize("name", [*SERVICES, "agenthost.target"])
def test_systemd_understands_each_line(tmp_path: Path, name: str) -> None:
    command = [str(ANALYZE), "verify", "--man=no", name]
    done = subprocess.run(command, cwd=copies(tmp_path), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", SERVICES)
def test_services_are_confined(tmp_path: Path, name: str) -> None:
    limit = EXPOSURE.get(name, 15)
    command = [str(ANALYZE), "security", "--offline=true", "--no-pager", f"--threshold={limit}", f"./{name}"]
    done = subprocess.run(command, cwd=copies(tmp_path), capture_output=True, text=True, check=False, timeout=60)
    if "offline" in done.stderr:
        pytest.skip("this systemd cannot analyze units offline (before 250)")
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_commands_settings_and_secrets_are_known_to_the_server(name: str) -> None:
    unit = systemd_units.read(name)
    assert unit.command[0] == "/opt/agenthost/ops/entrypoint"
    assert unit.command[1] in env.ROLES
    shipped = re.findall(r"^#? ?([A-Z_]+)=", (FOLDER / "settings.env").read_text(), re.MULTILINE)
    assert check_kubernetes.setting_faults(dict.fromkeys([*unit.environment, *shipped], "")) == []
    files = [value for key, value in unit.environment.items() if key.endswith("_FILE")]
    assert {f"/run/credentials/{name}/{each}" for each in unit.credentials} == set(files)
    # The password of the tables' owner is for the migration alone.
    owner = "/etc/agenthost/secrets/database_url_owner" in unit.credentials.values()
    assert owner == (unit.command[1] == "migrate")


def test_services_may_take_as_long_to_stop_as_they_drain() -> None:
    code = (ROOT / "agenthost" / "settings.py").read_text()
    drain, grace = (
        int(re.findall(rf'env\.duration\("{name}", (\d+)', code)[0])
        for name in ("AGENTHOST_DRAIN_SECONDS", "AGENTHOST_WORKER_GRACE_SECONDS")
    )
    assert systemd_units.read("agenthost-web@8000.service").one("TimeoutStopSec") == str(drain + 20)
    assert systemd_units.read("agenthost-worker@1.service").one("TimeoutStopSec") == str(grace + drain + 20)


def test_the_target_starts_services_that_exist_each_with_ports_of_its_own() -> None:
    names = re.findall(r"(agenthost-\S+\.service)", (FOLDER / "agenthost.target").read_text())
    ports = [systemd_units.read(name).environment["AGENTHOST_METRICS_PORT"] for name in names]
    assert len(set(ports)) == len(names) == 5
    assert all(1024 < int(port) < 65536 for port in ports)
    for name in names:
        assert systemd_units.read(name).one("PartOf", "Unit") == "agenthost.target"
