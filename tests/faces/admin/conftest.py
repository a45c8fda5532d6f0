"""Operators in front of the admin's pages."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.models import Staff, StaffRole, Tenant
from tests.faces.admin.conversations import make_tenant


@pytest.fixture
def eve(transactional_db: None) -> Client:
    """An operator who may do everything."""
    client = Client(REMOTE_ADDR="10.0.0.9")
    client.force_login(User.objects.create_superuser("eve"))
    return client


@pytest.fixture
def reader(transactional_db: None) -> Client:
    """An auditor: may look at everything of ours and change nothing."""
    user = User.objects.create_user("reader")
    Staff.objects.create(user=user, role=StaffRole.AUDITOR, reads_transcripts=True)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return make_tenant("acme")
