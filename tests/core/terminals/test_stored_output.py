"""The stored output of terminals counts as stored bytes of its tenant and key, until the terminal is disposed of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import QuotaExceeded
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.terminals import checkpoints, creating, disposing
from sessions_app.core.terminals.types import Claim
from sessions_app.models import Measure, Terminal, TerminalScreen
from tests.core.conftest import World
from tests.core.terminals.test_journal import say, terminal

__all__ = ["terminal"]
pytestmark = pytest.mark.django_db(transaction=True)


def used(world: World, key: int | None = None) -> int:
    return usage_entries.used(world.caller.tenant, Measure.BYTES, key)


def test_what_a_checkpoint_stores_is_counted_and_freed_with_the_terminal(alice: World, terminal: Terminal) -> None:
    before, of_key = used(alice), used(alice, alice.caller.line)
    say(terminal, "a little")
    checkpoints.store(terminal.pk)
    # Small changes are not counted, so that a busy terminal does not write an entry with each checkpoint.
    assert used(alice) == before
    say(terminal, "\u00e9" * 5_000)
    checkpoints.store(terminal.pk)
    screen = TerminalScreen.objects.get(pk=terminal.pk)
    assert used(alice) - before == screen.counted == len(screen.content.encode()) > 10_000
    assert used(alice, alice.caller.line) - of_key == screen.counted
    disposing.dispose(alice.caller, terminal)
    assert (used(alice), used(alice, alice.caller.line)) == (before, of_key)
    # The service's last checkpoint may come later.
    TerminalScreen.objects.filter(pk=terminal.pk).update(seq=0)
    checkpoints.store(terminal.pk)
    assert used(alice) == before


def test_no_terminal_is_created_over_the_quota_of_stored_bytes(alice: World, terminal: Terminal) -> None:
    say(terminal, "x" * 10_000)
    checkpoints.store(terminal.pk)
    alice.caller = replace(alice.caller, tenant_limits=Limits(stored_bytes=9_000))
    with pytest.raises(QuotaExceeded) as refused:
        creating.create(alice.caller, creating.Wanted("term:/two", Claim(client="c1")), "c1")
    assert (refused.value.quota, refused.value.limit) == ("stored-bytes", 9_000)
    assert not Terminal.objects.filter(uri="term:/two").exists()
    disposing.dispose(alice.caller, terminal)
    creating.create(alice.caller, creating.Wanted("term:/two", Claim(client="c1")), "c1")
