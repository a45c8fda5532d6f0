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
    assert "does not open journal.transaction" in fault


@pytest.mark.parametrize(
    "write",
    [
        "Message.objects.create(session=session)",
        "Message.objects.bulk_create([])",
        "ToolCall.objects.filter(pk=1).exclude(pk=2).update(state='done')",
        "old = Message.objects.filter(session=session)\nold.exclude(role='system').update(cut_at=None)",
        "for call in ToolCall.objects.all():\n    call.save()",
        "calls = list(ToolCall.objects.all())\ncalls[0].save()",
        "session.messages.all().delete()",
        "turn.tool_calls.update(state='done')",
        "Message(session=session)",
        "Turn.objects.filter(pk=1).update(parts='[]')",
        "SQL = 'update sessions_app_toolcall set state = 1'",
        "SQL = f'insert into sessions_app_message ({COLUMNS}) values (1)'",
        "SQL = f'update sessions_app_turn set {OTHERS}, parts = %s where id = %s'",
    ],
)
def test_a_write_of_the_history_outside_its_module_is_found(write: str) -> None:
    text = f"from sessions_app.models import Message, ToolCall, Turn\n{write}\n"
    (fault,) = import_rules.faults("sessions_app/core/turns/types.py", text)
    assert "writes messages, tool calls or a turn's parts" in fault
    assert import_rules.faults("sessions_app/core/records/history.py", text) == []


@pytest.mark.parametrize(
    "read",
    [
        "Message.objects.filter(session=session).exists()",
        "rows = ToolCall.objects.select_for_update().filter(turn=turn)",
        "payload.update(messages=1)",
        "Turn.objects.filter(pk=1).update(state='done')",
        "SQL = 'select parts from sessions_app_turn'",
        "SQL = 'insert into sessions_app_turn (parts) values (%s)'",
    ],
)
def test_reading_the_history_and_changing_other_rows_is_allowed(read: str) -> None:
    text = f"from sessions_app.models import Message, ToolCall, Turn\n{read}\n"
    assert import_rules.faults("sessions_app/core/turns/types.py", text) == []
