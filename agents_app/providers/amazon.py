"""AWS credentials, request signatures and the binary event stream, all from botocore.

botocore belongs to an extra, so it is imported where it is used. Its credential chain (environment variables, profiles,
instance metadata) may block: it runs in a thread.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agents_app import extras
from agents_app.errors import ProviderError
from agents_app.providers.server_errors import MalformedStream
from agents_app.providers.sse import EventTooLong

_lock = threading.Lock()
_sessions: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    region: str | None
    credentials: Any = field(repr=False)
    """botocore's frozen credentials; None if the chain has none."""


class EventMessage(Protocol):
    """One message of an event stream."""

    headers: Mapping[str, Any]
    payload: bytes


class EventStreamSplitter:
    """Splits an event stream into messages: takes chunks cut anywhere, returns the messages that are complete."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        self._buffer = EventStreamBuffer()

    def feed(self, chunk: bytes) -> list[EventMessage]:
        """Raises ``EventTooLong`` for a message above botocore's limits (24 MiB), ``MalformedStream`` for invalid bytes."""
        from botocore.eventstream import InvalidHeadersLength, InvalidPayloadLength, ParserError

        self._buffer.add_data(chunk)
        try:
            return list(self._buffer)
        except (InvalidHeadersLength, InvalidPayloadLength):
            raise EventTooLong from None
        except (ParserError, KeyError, struct.error, UnicodeDecodeError):
            raise MalformedStream from None

    def finish(self) -> list[EventMessage]:
        """Drops a message that the stream's end cut off."""
        return []


async def identity(profile: str | None) -> Identity:
    return await asyncio.to_thread(_identity, profile)


def signed(url: str, headers: Mapping[str, str], body: bytes, region: str, signer: Identity) -> dict[str, str]:
    """``headers`` with a signature over the request."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    # Proxies may change other headers on the way, so only this one is signed.
    request = AWSRequest("POST", url, headers={"Content-Type": headers["Content-Type"]}, data=body)
    SigV4Auth(signer.credentials, "bedrock", region).add_auth(request)
    return {**headers, **dict(request.headers.items())}


def _identity(profile: str | None) -> Identity:
    # A turn may go on by a definition that another process loaded, with other packages.
    if (missing := extras.missing_for_provider("bedrock")) is not None:
        raise ProviderError("configuration", missing)
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        with _lock:
            session = _sessions.setdefault(profile or "", Session(profile=profile))
        found = session.get_credentials()
        return Identity(session.get_config_variable("region"), None if found is None else found.get_frozen_credentials())
    except BotoCoreError as problem:
        raise ProviderError("configuration", f"the AWS credentials cannot be read: {type(problem).__name__}") from None
