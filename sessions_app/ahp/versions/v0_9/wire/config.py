"""Configuration in AHP 0.9: schemas of it and its values."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_9.wire.messages import JsonPrimitive


class ConfigPropertySchema(TypedDict):
    type: Literal["string", "number", "boolean", "array", "object"]
    title: str
    description: NotRequired[str]
    default: NotRequired[Any]
    enum: NotRequired[list[JsonPrimitive]]
    enumLabels: NotRequired[list[str]]
    enumDescriptions: NotRequired[list[str]]
    readOnly: NotRequired[bool]
    items: NotRequired[ConfigPropertySchema]
    properties: NotRequired[dict[str, ConfigPropertySchema]]
    required: NotRequired[list[str]]
    additionalProperties: NotRequired[ConfigPropertySchema]


class ConfigSchema(TypedDict):
    type: Literal["object"]
    properties: dict[str, ConfigPropertySchema]
    required: NotRequired[list[str]]


class RootConfigState(TypedDict):
    schema: ConfigSchema
    values: dict[str, Any]


class SessionConfigPropertySchema(ConfigPropertySchema):
    enumDynamic: NotRequired[bool]
    sessionMutable: NotRequired[bool]


class SessionConfigSchema(TypedDict):
    type: Literal["object"]
    properties: dict[str, SessionConfigPropertySchema]
    required: NotRequired[list[str]]


class SessionConfigState(TypedDict):
    schema: SessionConfigSchema
    values: dict[str, Any]
