"""Amazon Bedrock's Converse, streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from agents_app.errors import ProviderError
from agents_app.providers import amazon, bedrock_request, exchange, names
from agents_app.providers.bedrock_stream import BedrockStream
from agents_app.providers.server_errors import ServerError, classified
from agents_app.runtime.interface import ModelRequest, ProviderEvent

_AMAZONS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


class Bedrock:
    """The provider ``bedrock`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return _stream(request)


async def _stream(request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
    answer = exchange.stream(request, await _prepared(request))
    try:
        async for batch in answer:
            yield batch
    finally:
        await answer.aclose()


async def _prepared(request: ModelRequest) -> Callable[[], exchange.Call]:
    """A function that builds the call: with a key as bearer token, else signed with credentials of the AWS chain."""
    region, profile = _text(request, "aws_region"), _text(request, "aws_profile")
    who: amazon.Identity | None = None
    if not request.api_key or (region is None and request.base_url is None):
        who = await amazon.identity(profile)
        region = region or who.region or _region_in(request.base_url)
    base = request.base_url or f"https://bedrock-runtime.{_known(region)}.amazonaws.com"
    url = exchange.address(base, f"/model/{quote(request.model, safe='')}/converse-stream")
    return partial(_call, request, url, region, who)


def _call(request: ModelRequest, url: str, region: str | None, who: amazon.Identity | None) -> exchange.Call:
    fit, back = names.fitting(request)
    body = bedrock_request.body(fit)
    headers = {**exchange.headers(request), "Accept": "application/vnd.amazon.eventstream"}
    if not request.api_key and not any(name.lower() == "authorization" for name in request.headers):
        if not (urlsplit(url).hostname or "").endswith(_AMAZONS):
            raise ProviderError("configuration", "bedrock: the server's own credentials are used for Amazon's hosts only")
        if who is None or who.credentials is None:
            raise ProviderError("configuration", "bedrock: there is neither an api_key nor are there AWS credentials")
        headers = amazon.signed(url, headers, body, _known(region), who)
    return exchange.Call(
        vendor="bedrock",
        url=url,
        headers=headers,
        body=body,
        answer=BedrockStream,
        splitter=amazon.EventStreamSplitter,
        refused=_refused,
        tool_names=back,
        as_written=True,
    )


def _refused(document: Any, status: int, headers: Mapping[str, str]) -> ServerError:
    fields = document if isinstance(document, dict) else {}
    kind = headers.get("x-amzn-errortype", "").partition(":")[0]
    return classified({"code": kind, "message": fields.get("message") or fields.get("Message")}, status)


def _text(request: ModelRequest, name: str) -> str | None:
    value = request.settings.get(name)
    return value if isinstance(value, str) and value else None


def _known(region: str | None) -> str:
    if region is None:
        raise ProviderError("configuration", "bedrock: no region; set AWS_REGION or aws_region in the agent's settings")
    return region


def _region_in(base_url: str | None) -> str | None:
    parts = (urlsplit(base_url or "").hostname or "").split(".")
    return parts[1] if len(parts) > 3 and parts[0].startswith("bedrock-runtime") else None
