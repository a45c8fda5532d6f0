"""Results of an agent's commands name their terminals, and what is kept of these: a sandbox, a service, a worker, the script."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents_app.spec import AgentSpec
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import chats
from sessions_app.core.base import journal_keys
from sessions_app.core.base.errors import PositionPruned, TerminalNotFound
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log import journal
from sessions_app.core.sessions import deleting, state
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.terminals import access, changing, disposing, keeping, listing, services
from sessions_app.core.terminals import state as terminal_states
from sessions_app.core.terminals.service import Service
from sessions_app.core.terminals.state import TerminalView
from sessions_app.core.terminals.types import Claim
from sessions_app.models import Event, Session, Terminal, TerminalScreen
from tests.core.conftest import World, wait_for, wait_for_state
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.worker.test_commands import (  # noqa: F401 - fixtures
    TOOLS,
    begin,
    coder,
    play,
    volume_directory,
)
from tests.core.worker.test_file_tools import trusted
from tests.fakes.model_server import ModelServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]


@pytest.fixture
def service(coder: AgentSpec) -> Any:  # noqa: F811
    service = Service()
    service.start()
    assert not service.fault
    yield service
    service.stop()


def blocks(world: World, session: Session) -> list[dict[str, Any]]:
    """The terminals in the results of the session's calls, as clients of AHP 1.0 see them."""
    shown = chats.state_of(state.read(world.caller, session), "s:/a", Face("1"))
    calls = [part["toolCall"] for turn in shown["turns"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    return [block for call in calls for block in call["content"] if block["type"] == "terminal"]


def read_again(world: World, uri: str) -> TerminalView:
    return terminal_states.read(world.caller, access.find_kept(world.caller, [uri])[uri])


def keep_house() -> int:
    Terminal.with_disposed.filter(disposed_at__isnull=False).update(disposed_at=datetime.now(UTC) - timedelta(hours=1))
    return services.keep_house(Round(20))


def text_of(view: TerminalView) -> str:
    return "".join(part.text for part in view.screen.parts)


@pytest.mark.rule("V167", "V233", "R314")
def test_a_result_says_how_its_command_ended_and_its_terminal_can_be_read_again(
    alice: World, bob: World, service: Service, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted(*TOOLS))
    play(
        alice,
        model,
        session,
        {"command": "printf '\\033[1mhello\\033[0m\\r\\n'; exit 3"},
        {"command": "seq 1 20000"},
        {"command": "kill -9 $$"},
    )
    small, large, killed = blocks(alice, session)
    assert small["result"] == {"exitCode": 3, "preview": "hello", "truncated": False}
    assert (large["result"]["exitCode"], large["result"]["truncated"]) == (0, True)
    assert large["result"]["preview"].endswith("\n19999\n20000")
    assert len(large["result"]["preview"]) <= 1000
    assert killed["result"] == {"preview": "", "truncated": False}
    # They are gone from the list, and can be read; before and after what is left of them was cleared away.
    assert listing.of(alice.caller.tenant) == []
    for cleared in (False, True):
        if cleared:
            assert keep_house() == 3
            assert keep_house() == 0
        view = read_again(alice, small["resource"])
        assert (view.has_exited, view.exit_code, view.title) == (True, 3, small["title"])
        assert text_of(view) == "\x1b[1mhello\x1b[0m\r\r\n"
        [part] = [part for part in view.screen.parts if part.command is not None]
        assert (part.line, part.code, part.is_complete) == ("printf '\\033[1mhello\\033[0m\\r\\n'; exit 3", 3, True)
        assert view.claim.session == state.read(alice.caller, session).summary.uri
        assert read_again(alice, killed["resource"]).exit_code is None
        assert text_of(read_again(alice, large["resource"])).endswith("19999\r\n20000\r\n")
        assert access.find_kept(bob.caller, [small["resource"]]) == {}
        with pytest.raises(TerminalNotFound):
            access.find(alice.caller, small["resource"])
    assert len(text_of(read_again(alice, large["resource"]))) <= keeping.MOST_KEPT
    assert not Event.objects.filter(session_id__gte=journal_keys.of_terminal(0)).exists()
    row = access.find_kept(alice.caller, [small["resource"]])[small["resource"]]
    with pytest.raises(PositionPruned):
        journal.read_session(row.tenant_id, journal_keys.of_terminal(row.pk), 1)
    # What is kept counts as stored, until the session is deleted.
    assert TerminalScreen.objects.filter(counted__gt=16_000).count() == 1
    deleting.delete(alice.caller, session)
    assert access.find_kept(alice.caller, [small["resource"]]) == {}
    assert keep_house() == 3
    assert (Terminal.with_disposed.count(), TerminalScreen.objects.count()) == (0, 0)
    assert usage_entries.bytes_of_session(session) >= 0


@pytest.mark.rule("V233", "R306")
def test_a_command_in_the_background_can_be_read_after_its_terminal_was_closed(
    alice: World, service: Service, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted(*TOOLS))
    accepted, terminal = begin(alice, model, session, "echo serving; read line; echo got $line; exit 4", "serving")
    uri = Claim.read(terminal.claim).session
    changing.claim(alice.caller, terminal, Claim(session=uri), "me", dispatched=None)
    assert wait_for_state(accepted, "done", "error").state == "done"
    [block] = blocks(alice, session)
    assert block == {"type": "terminal", "resource": terminal.uri, "title": terminal.title}
    assert access.find_kept(alice.caller, [terminal.uri]) == {}
    changing.type_into(alice.caller, access.find(alice.caller, terminal.uri), "it\n", dispatched=None)
    wait_for(lambda: Terminal.objects.get(pk=terminal.pk).exit_code == 4, "the exit")
    disposing.dispose(alice.caller, access.find(alice.caller, terminal.uri))
    assert keep_house() == 1
    view = read_again(alice, terminal.uri)
    assert (view.exit_code, view.has_exited) == (4, True)
    assert "got it" in text_of(view)
    assert blocks(alice, session) == [block]


@pytest.mark.rule("V167", "V233")
def test_a_command_that_a_user_closed_has_a_result_without_a_code(
    alice: World, service: Service, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted(*TOOLS))
    accepted, terminal = begin(alice, model, session, "echo up$((1)); sleep 1000", "up1")
    disposing.dispose(alice.caller, terminal)
    assert wait_for_state(accepted, "done", "error").state == "done"
    [block] = blocks(alice, session)
    assert block["result"] == {"preview": "up1", "truncated": False}
    view = read_again(alice, block["resource"])
    assert (view.exit_code, view.has_exited, "up1" in text_of(view)) == (None, True, True)
