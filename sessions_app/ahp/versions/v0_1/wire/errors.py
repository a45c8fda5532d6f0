"""The error codes of AHP 0.1, and the errors whose data the protocol demands (R32, R33)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NotRequired, TypedDict

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.commands import ResourceRequestParams
from sessions_app.ahp.versions.v0_1.wire.state import ProtectedResourceMetadata
from sessions_app.core.base.shapes import Shape


class Code(IntEnum):
    """The error codes of AHP. JSON-RPC's own codes are in ``sessions_app.ahp.transport.jsonrpc``."""

    SESSION_NOT_FOUND = -32001
    PROVIDER_NOT_FOUND = -32002
    SESSION_ALREADY_EXISTS = -32003
    TURN_IN_PROGRESS = -32004
    UNSUPPORTED_PROTOCOL_VERSION = -32005
    CONTENT_NOT_FOUND = -32006
    AUTH_REQUIRED = -32007
    NOT_FOUND = -32008
    PERMISSION_DENIED = -32009
    ALREADY_EXISTS = -32010


class UnsupportedProtocolVersionErrorData(TypedDict):
    supportedVersions: list[str]


class AuthRequiredErrorData(TypedDict):
    resources: list[ProtectedResourceMetadata]


class PermissionDeniedErrorData(TypedDict):
    request: NotRequired[ResourceRequestParams]


DATA: Mapping[Code, Shape[Any]] = {
    Code.UNSUPPORTED_PROTOCOL_VERSION: Shape(UnsupportedProtocolVersionErrorData),
    Code.AUTH_REQUIRED: Shape(AuthRequiredErrorData),
    Code.PERMISSION_DENIED: Shape(PermissionDeniedErrorData),
}
"""The shape of ``data``, for the codes that have one; always there for the first two (R33)."""


def unsupported_protocol_version(supported: Sequence[str]) -> RPCError:
    """After sending it the host closes the connection (R44)."""
    data = {"supportedVersions": list(supported)}
    return RPCError(
        Code.UNSUPPORTED_PROTOCOL_VERSION, f"None of the offered versions; this host speaks {', '.join(supported)}.", data
    )


def auth_required(resources: Sequence[ProtectedResourceMetadata], message: str) -> RPCError:
    return RPCError(Code.AUTH_REQUIRED, message, {"resources": list(resources)})


def permission_denied(message: str, ask_for: ResourceRequestParams | None = None) -> RPCError:
    """``ask_for``: the ``resourceRequest`` that may help; None if none can."""
    return RPCError(Code.PERMISSION_DENIED, message, None if ask_for is None else {"request": dict(ask_for)})
