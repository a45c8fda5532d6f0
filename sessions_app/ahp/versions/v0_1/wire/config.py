"""Configuration in AHP 0.1: schemas of it and its values, of models, of sessions, of the host."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

ConfigPropertyType = Literal["string", "number", "boolean", "array", "object"]


class ConfigPropertySchema(TypedDict):
    type: ConfigPropertyType
    title: str
    description: NotRequired[str]
    default: NotRequired[Any]
    enum: NotRequired[list[str]]
    enumLabels: NotRequired[list[str]]
    enumDescriptions: NotRequired[list[str]]
    readOnly: NotRequired[bool]
    items: NotRequired[ConfigPropertySchema]
    properties: NotRequired[dict[str, ConfigPropertySchema]]
    required: NotRequired[list[str]]


class ConfigSchema(TypedDict):
    type: Literal["object"]
    properties: dict[str, ConfigPropertySchema]
    required: NotRequired[list[str]]


class SessionConfigPropertySchema(ConfigPropertySchema):
    enumDynamic: NotRequired[bool]
    sessionMutable: NotRequired[bool]


class SessionConfigSchema(TypedDict):
    type: Literal["object"]
    properties: dict[str, SessionConfigPropertySchema]
    required: NotRequired[list[str]]


class RootConfigState(TypedDict):
    schema: ConfigSchema
    values: dict[str, Any]


class SessionConfigState(TypedDict):
    schema: SessionConfigSchema
    values: dict[str, Any]


class SessionConfigValueItem(TypedDict):
    value: str
    label: str
    description: NotRequired[str]
