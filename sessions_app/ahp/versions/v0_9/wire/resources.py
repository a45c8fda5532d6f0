"""Resources that need a sign-in, in AHP 0.9."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from sessions_app.ahp.versions.v0_9.wire.enumerations import McpAuthRequiredReason


class McpOAuthClient(TypedDict):
    clientId: str
    clientSecret: NotRequired[str]


class ProtectedResourceMetadata(TypedDict):
    resource: str
    resource_name: NotRequired[str]
    authorization_servers: NotRequired[list[str]]
    jwks_uri: NotRequired[str]
    scopes_supported: NotRequired[list[str]]
    bearer_methods_supported: NotRequired[list[str]]
    resource_signing_alg_values_supported: NotRequired[list[str]]
    resource_documentation: NotRequired[str]
    resource_policy_uri: NotRequired[str]
    resource_tos_uri: NotRequired[str]
    required: NotRequired[bool]


class McpAuthRequirement(TypedDict):
    reason: McpAuthRequiredReason
    oauthClient: NotRequired[McpOAuthClient]
    resource: ProtectedResourceMetadata
    requiredScopes: NotRequired[list[str]]
    description: NotRequired[str]
