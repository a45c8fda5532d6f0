"""The error codes of AHP 0.9, and the data of errors that have some."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.errors import UnsupportedProtocolVersionErrorData
from sessions_app.ahp.versions.v0_9.wire.files import ResourceRequestParams
from sessions_app.ahp.versions.v0_9.wire.resources import ProtectedResourceMetadata
from sessions_app.core.base.shapes import Shape


class Code(IntEnum):
    """The error codes of AHP. JSON-RPC's own codes are in ``sessions_app.ahp.transport.jsonrpc``."""

    SESSION_NOT_FOUND = -32001
    PROVIDER_NOT_FOUND = -32002
    SESSION_ALREADY_EXISTS = -32003
    TURN_IN_PROGRESS = -32004
    UNSUPPORTED_PROTOCOL_VERSION = -32005
    AUTH_REQUIRED = -32007
    NOT_FOUND = -32008
    PERMISSION_DENIED = -32009
    ALREADY_EXISTS = -32010
    CONFLICT = -32011


class AuthRequiredErrorData(TypedDict):
    resources: list[ProtectedResourceMetadata]


class PermissionDeniedErrorData(TypedDict):
    request: NotRequired[ResourceRequestParams]


DATA: Mapping[Code, Shape[Any]] = {
    Code.UNSUPPORTED_PROTOCOL_VERSION: Shape(UnsupportedProtocolVersionErrorData),
    Code.AUTH_REQUIRED: Shape(AuthRequiredErrorData),
    Code.PERMISSION_DENIED: Shape(PermissionDeniedErrorData),
}
"""The shape of ``data``, for the codes that have one."""
