"""Operators in front of the admin's pages."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from sessions_app.models import Tenant
from tests.faces.admin.conversations import make_tenant


@pytest.fixture
def eve(transactional_db: None) -> Client:
    """An operator who may do everything."""
    client = Client(REMOTE_ADDR="10.0.0.9")
    client.force_login(User.objects.create_superuser("eve"))
    return client


@pytest.fixture
def reader(transactional_db: None) -> Client:
    """An operator who may look at everything of ours and change nothing."""
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="sessions_app", codename__startswith="view_"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return make_tenant("acme")
