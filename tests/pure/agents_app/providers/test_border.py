"""No test reaches a real model, by whichever library it tries."""

from __future__ import annotations

import httpx
import httpx2
import pytest
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session

from agents_app import providers
from agents_app.errors import ProviderError
from agents_app.runtime.interface import Limits, ModelRequest
from agents_app.runtime.messages import Message


def refused(crossings: list[str]) -> None:
    assert crossings
    crossings.clear()


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic", "google", "mistral", "bedrock"])
async def test_a_provider_without_a_base_url_is_stopped(name: str, crossings: list[str]) -> None:
    provider = providers.find(name)
    assert provider is not None
    settings = {"aws_region": "eu-west-1"} if name == "bedrock" else {}
    request = ModelRequest("m", "", [Message("user", "hi")], settings=settings, api_key="k", limits=Limits(retries=0))
    with pytest.raises((ProviderError, PermissionError)):
        await anext(aiter(provider.stream(request)))
    refused(crossings)


async def test_the_libraries_below_the_vendors_are_stopped(crossings: list[str]) -> None:
    async with httpx2.AsyncClient() as newer:
        with pytest.raises((httpx2.HTTPError, PermissionError)):
            await newer.get("https://api.anthropic.com/")
    refused(crossings)
    async with httpx.AsyncClient() as older:
        with pytest.raises((httpx.HTTPError, PermissionError)):
            await older.get("https://api.groq.com/")
    refused(crossings)
    with pytest.raises((BotoCoreError, PermissionError)):
        URLLib3Session().send(AWSRequest("GET", "https://bedrock-runtime.eu-west-1.amazonaws.com/").prepare())
    refused(crossings)
