"""Files and watches in AHP 0.9 and 1.0: params and results of the commands, states and changes of watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.commands import (
    Command,
    ResourceCopyResult,
    ResourceDeleteResult,
    ResourceListResult,
    ResourceMoveResult,
    ResourceReadResult,
    ResourceRequestResult,
    ResourceWriteResult,
)
from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, ContentEncoding
from sessions_app.core.base.shapes import Rule, Shape

_NOT_NEGATIVE = Rule(lambda value: None if value >= 0 else "must not be negative", minimum=0)


class OfRoot(TypedDict):
    """What all params of these commands have."""

    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]


class ResourceReadParams(OfRoot):
    uri: str
    encoding: NotRequired[ContentEncoding]


class ResourceWriteParams(OfRoot):
    uri: URI
    data: str
    encoding: ContentEncoding
    contentType: NotRequired[str]
    createOnly: NotRequired[bool]
    mode: NotRequired[Literal["truncate", "append", "insert"]]
    position: NotRequired[Annotated[int, _NOT_NEGATIVE]]
    ifMatch: NotRequired[str]


class ResourceListParams(OfRoot):
    uri: URI


class ResourceCopyParams(OfRoot):
    source: URI
    destination: URI
    failIfExists: NotRequired[bool]


class ResourceMoveParams(ResourceCopyParams):
    pass


class ResourceDeleteParams(OfRoot):
    uri: URI
    recursive: NotRequired[bool]


class ResourceRequestParams(OfRoot):
    uri: URI
    read: NotRequired[bool]
    write: NotRequired[bool]


class ResourceResolveParams(OfRoot):
    uri: URI
    followSymlinks: NotRequired[bool]


class ResourceResolveResult(TypedDict):
    uri: URI
    type: Literal["file", "directory", "symlink"]
    size: NotRequired[int]
    mtime: NotRequired[str]
    ctime: NotRequired[str]
    contentType: NotRequired[str]
    etag: NotRequired[str]


class ResourceMkdirParams(OfRoot):
    uri: URI


class ResourceMkdirResult(TypedDict):
    pass


class Patterns(TypedDict):
    items: list[str]


class CreateResourceWatchParams(OfRoot):
    uri: URI
    recursive: NotRequired[bool]
    includes: NotRequired[Patterns]
    excludes: NotRequired[Patterns]


class CreateResourceWatchResult(TypedDict):
    channel: URI


class ResourceWatchState(TypedDict):
    root: URI
    recursive: bool
    includes: NotRequired[Patterns]
    excludes: NotRequired[Patterns]


class ResourceChange(TypedDict):
    uri: URI
    type: Literal["added", "updated", "deleted"]


class ResourceChanges(TypedDict):
    items: list[ResourceChange]


class ResourceWatchChangedAction(TypedDict):
    type: Literal["resourceWatch/changed"]
    changes: ResourceChanges


def _command(params: Any, result: Any) -> Command:
    return Command(Shape(params), Shape(result))


COMMANDS: Mapping[str, Command] = {
    "resourceRead": _command(ResourceReadParams, ResourceReadResult),
    "resourceWrite": _command(ResourceWriteParams, ResourceWriteResult),
    "resourceList": _command(ResourceListParams, ResourceListResult),
    "resourceCopy": _command(ResourceCopyParams, ResourceCopyResult),
    "resourceMove": _command(ResourceMoveParams, ResourceMoveResult),
    "resourceDelete": _command(ResourceDeleteParams, ResourceDeleteResult),
    "resourceRequest": _command(ResourceRequestParams, ResourceRequestResult),
    "resourceResolve": _command(ResourceResolveParams, ResourceResolveResult),
    "createResourceWatch": _command(CreateResourceWatchParams, CreateResourceWatchResult),
    "resourceMkdir": _command(ResourceMkdirParams, ResourceMkdirResult),
}
