"""Who this server is to Amazon: credentials from the usual chain, and signatures made with them.

The library behind it reads variables, profiles and instance metadata as every AWS tool does; it may block, so it
is asked in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents_app import extras
from agents_app.errors import ProviderError

_lock = threading.Lock()
_sessions: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    region: str | None
    credentials: Any = field(repr=False)
    """botocore's frozen credentials; None: the chain has none."""


async def identity(profile: str | None) -> Identity:
    return await asyncio.to_thread(_identity, profile)


def signed(url: str, headers: Mapping[str, str], body: bytes, region: str, who: Identity) -> dict[str, str]:
    """The headers with a signature over the request."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    # What passes through proxies may change on the way: of all others only these are signed.
    request = AWSRequest("POST", url, headers={"Content-Type": headers["Content-Type"]}, data=body)
    SigV4Auth(who.credentials, "bedrock", region).add_auth(request)
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
