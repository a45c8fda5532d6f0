"""Plugins, directories and MCP servers, in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_1.wire.messages import TextRange
from sessions_app.ahp.versions.v0_1.wire.state import Icon
from sessions_app.ahp.versions.v0_9.wire.enumerations import ChildCustomizationType
from sessions_app.ahp.versions.v0_9.wire.messages import ErrorInfo
from sessions_app.ahp.versions.v0_9.wire.resources import McpAuthRequirement


class CustomizationBase(TypedDict):
    id: str
    uri: URI
    name: str
    icons: NotRequired[list[Icon]]
    range: NotRequired[TextRange]
    _meta: NotRequired[dict[str, Any]]


class ChildCustomizationBase(CustomizationBase):
    enabled: NotRequired[bool]


class AgentCustomization(ChildCustomizationBase):
    type: Literal["agent"]
    description: NotRequired[str]
    model: NotRequired[str]
    tools: NotRequired[list[str]]
    disableModelInvocation: NotRequired[bool]
    disableUserInvocation: NotRequired[bool]


class AhpMcpUiHostCapabilitiesServerTools(TypedDict):
    listChanged: NotRequired[bool]


class AhpMcpUiHostCapabilitiesServerResources(TypedDict):
    listChanged: NotRequired[bool]


class AhpMcpUiHostCapabilitiesSampling(TypedDict):
    tools: NotRequired[dict[str, Any]]


class AhpMcpUiHostCapabilities(TypedDict):
    serverTools: NotRequired[AhpMcpUiHostCapabilitiesServerTools]
    serverResources: NotRequired[AhpMcpUiHostCapabilitiesServerResources]
    logging: NotRequired[dict[str, Any]]
    sampling: NotRequired[AhpMcpUiHostCapabilitiesSampling]


class HookCustomization(ChildCustomizationBase):
    type: Literal["hook"]


class CustomizationEnablementGlobal(TypedDict):
    kind: Literal["global"]
    enabled: bool


class CustomizationEnablementWorkspace(TypedDict):
    kind: Literal["workspace"]
    uri: URI
    enabled: bool


class CustomizationEnablementSession(TypedDict):
    kind: Literal["session"]
    enabled: bool


CustomizationEnablement = CustomizationEnablementGlobal | CustomizationEnablementWorkspace | CustomizationEnablementSession


class McpServerCustomizationApps(TypedDict):
    capabilities: AhpMcpUiHostCapabilities


class McpServerAuthRequiredState(McpAuthRequirement):
    kind: Literal["authRequired"]


class McpServerErrorState(TypedDict):
    kind: Literal["error"]
    error: ErrorInfo


class McpServerReadyState(TypedDict):
    kind: Literal["ready"]


class McpServerStartingState(TypedDict):
    kind: Literal["starting"]


class McpServerStoppedState(TypedDict):
    kind: Literal["stopped"]


McpServerState = (
    McpServerStartingState | McpServerReadyState | McpServerAuthRequiredState | McpServerErrorState | McpServerStoppedState
)


class McpServerCustomization(CustomizationBase):
    type: Literal["mcpServer"]
    state: McpServerState
    channel: NotRequired[URI]
    mcpApp: NotRequired[McpServerCustomizationApps]
    enablement: NotRequired[list[CustomizationEnablement]]


class PromptCustomization(ChildCustomizationBase):
    type: Literal["prompt"]
    description: NotRequired[str]


class RuleCustomization(ChildCustomizationBase):
    type: Literal["rule"]
    description: NotRequired[str]
    alwaysApply: NotRequired[bool]
    globs: NotRequired[list[str]]


class SkillCustomization(ChildCustomizationBase):
    type: Literal["skill"]
    description: NotRequired[str]
    disableModelInvocation: NotRequired[bool]
    disableUserInvocation: NotRequired[bool]


ChildCustomization = (
    AgentCustomization | SkillCustomization | PromptCustomization | RuleCustomization | HookCustomization | McpServerCustomization
)


class CustomizationDegradedState(TypedDict):
    kind: Literal["degraded"]
    message: str


class CustomizationErrorState(TypedDict):
    kind: Literal["error"]
    message: str


class CustomizationLoadedState(TypedDict):
    kind: Literal["loaded"]


class CustomizationLoadingState(TypedDict):
    kind: Literal["loading"]


CustomizationLoadState = (
    CustomizationLoadingState | CustomizationLoadedState | CustomizationDegradedState | CustomizationErrorState
)


class ClientPluginCustomization(CustomizationBase):
    clientId: NotRequired[str]
    load: NotRequired[CustomizationLoadState]
    children: NotRequired[list[ChildCustomization]]
    type: Literal["plugin"]
    version: NotRequired[str]
    nonce: NotRequired[str]
    enablement: NotRequired[list[CustomizationEnablement]]
    childEnablement: NotRequired[dict[str, list[CustomizationEnablement]]]


class ContainerCustomizationBase(CustomizationBase):
    enabled: bool
    clientId: NotRequired[str]
    load: NotRequired[CustomizationLoadState]
    children: NotRequired[list[ChildCustomization]]


class DirectoryCustomization(ContainerCustomizationBase):
    type: Literal["directory"]
    contents: ChildCustomizationType
    writable: bool


class PluginCustomization(CustomizationBase):
    clientId: NotRequired[str]
    load: NotRequired[CustomizationLoadState]
    children: NotRequired[list[ChildCustomization]]
    type: Literal["plugin"]
    version: NotRequired[str]
    enablement: NotRequired[list[CustomizationEnablement]]


Customization = PluginCustomization | DirectoryCustomization | McpServerCustomization
