"""The end of a terminal service while it takes a terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.core.terminals import creating, services
from sessions_app.core.terminals.service import Service
from sessions_app.core.terminals.services import Claimed
from sessions_app.core.terminals.types import Claim
from sessions_app.core.workspaces import volume
from sessions_app.models import Terminal, TerminalState
from tests.core.conftest import WAIT, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]


@pytest.fixture
def _terminals_on(tmp_path: Path, settings: Any) -> Iterator[None]:
    tmp_path.chmod(0o755)
    settings.AGENTHOST_WORKSPACES_DIR, settings.AGENTHOST_TERMINALS = tmp_path / "workspaces", True
    settings.AGENTHOST_SWEEP_SECONDS = 0.1
    volume.forget()
    yield
    volume.forget()


@pytest.mark.usefixtures("_terminals_on")
def test_a_terminal_that_is_being_claimed_is_ended_too(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, begun, go_on = services.claim, threading.Event(), threading.Event()

    def slowly(*given: Any, **more: Any) -> list[Claimed]:
        found = claim(*given, **more)
        if found:
            begun.set()
            assert go_on.wait(WAIT)
        return found

    monkeypatch.setattr(services, "claim", slowly)
    service = Service()
    service.start()
    assert not service.fault
    creating.create(alice.caller, creating.Wanted("term:/one", Claim(client="c1")), "c1")
    assert begun.wait(WAIT)
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    while not service._stopping.is_set():
        pass
    go_on.set()
    stopping.join(WAIT)
    assert Terminal.objects.get().state == TerminalState.EXITED
    assert not service._live
