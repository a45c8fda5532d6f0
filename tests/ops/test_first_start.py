"""What ops/quickstart does when nobody reads what it says."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agenthost.cli import up
from ops import clean_environment
from ops.services import free_port
from sessions_app.models import Member, Role
from tests import closed_pipe
from tests.paths import ROOT


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """`ops/quickstart | head -1`: it ends instead of starting a server whose key nobody has seen."""
    environment = {**clean_environment.inherited(), "AGENTHOST_VAR_DIR": str(tmp_path / "var")}
    done = closed_pipe.run([sys.executable, "-m", "agenthost", "up", "--port", str(free_port())], environment, ROOT)
    assert done.stderr == b""
    assert done.returncode == 141


def test_the_port_is_the_settings_unless_it_is_given(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        environment = {**clean_environment.inherited(), "AGENTHOST_VAR_DIR": str(tmp_path), "AGENTHOST_PORT": str(port)}
        done = subprocess.run(
            [sys.executable, "-m", "agenthost", "up"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"Port {port} is in use; choose another: ops/quickstart --port " in done.stderr


@pytest.mark.django_db
def test_the_admin_of_a_first_start_owns_its_tenant(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTHOST_PORT", "8000")
    for _ in range(2):
        up.prepare("http://127.0.0.1:8000")
        assert "http://127.0.0.1:8000/console/" in capsys.readouterr().out
    member = Member.objects.get()
    assert (member.user.get_username(), member.tenant.slug, member.role) == (up.ADMIN, up.TENANT, Role.OWNER)
