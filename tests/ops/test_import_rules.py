"""Imports that the contract's tool cannot see."""

from __future__ import annotations

import pytest

from ops import import_rules


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sessions_app/core/turns.py", "from django.http import HttpRequest"),
        ("sessions_app/core/turns.py", "import django.http"),
        ("sessions_app/core/turns.py", "from django import http"),
        ("sessions_app/core/log/journal/postgres.py", "def f():\n    from rest_framework import status"),
        ("sessions_app/core/log/broadcast/layer.py", "from channels.generic.websocket import WebsocketConsumer"),
        ("sessions_app/core/log/feed.py", "from channels.layers import get_channel_layer"),
        ("sessions_app/core/worker/worker.py", "import celery"),
        ("sessions_app/aap/versions/v3.py", "from asgiref.sync import sync_to_async"),
    ],
)
def test_a_library_that_came_in_beside_its_door_is_found(name: str, line: str) -> None:
    assert len([fault for fault in import_rules.faults(name, line) if fault.startswith(f"{name}:")]) >= 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sessions_app/core/log/broadcast/layer.py", "from channels.layers import BaseChannelLayer"),
        ("sessions_app/core/turns/tasks.py", "from celery import shared_task"),
        ("sessions_app/core/base/database.py", "from asgiref.sync import sync_to_async"),
        ("sessions_app/core/turns.py", "from django.db import transaction"),
        ("sessions_app/aap/versions/v3.py", "from django.http import HttpRequest"),
    ],
)
def test_the_doors_themselves_are_open(name: str, line: str) -> None:
    assert import_rules.faults(name, line) == []


def test_a_transaction_of_the_journal_in_a_module_that_may_not_open_one_is_found() -> None:
    text = "from sessions_app.core.log import journal\n\nwith journal.transaction() as tx:\n    pass\n"
    (fault,) = import_rules.faults("sessions_app/core/worker/runner.py", text)
    assert fault.startswith("sessions_app/core/worker/runner.py:3: opens journal.transaction")
    assert import_rules.faults("sessions_app/core/turns/starting.py", text) == []


def test_a_module_that_opens_no_transaction_any_more_is_taken_off_the_list() -> None:
    (fault,) = import_rules.faults("sessions_app/core/turns/starting.py", "x = 1\n")
    assert "any more" in fault
