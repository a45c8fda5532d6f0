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
