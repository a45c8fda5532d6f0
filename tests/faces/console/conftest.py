"""A tenant and clients of its members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.models import Member, Role, Tenant
from tests.faces.admin.conversations import make_tenant

As = Callable[..., Client]


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return make_tenant("acme")


@pytest.fixture
def as_role(acme: Tenant) -> As:
    """A client that is signed in as a new member: ``as_role(Role.OWNER)``."""

    def signed_in(role: Role, name: str = "", tenant: Tenant | None = None) -> Client:
        user = User.objects.create_user(name or str(role))
        Member.objects.create(tenant=tenant or acme, user=user, role=role)
        client = Client(REMOTE_ADDR="192.0.2.1")
        client.force_login(user)
        return client

    return signed_in


def text(response: Any) -> str:
    return str(response.content.decode())


def body(response: Any) -> bytes:
    """The content of a file to save."""

    async def read() -> bytes:
        return b"".join([piece async for piece in response])

    return asyncio.run(read())
