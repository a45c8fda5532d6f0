"""Django's request object for protocol requests, which builds only what the endpoints use."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

from django.core.handlers.asgi import ASGIRequest, get_script_prefix

from agenthost.guard import Scope


class Headers(Mapping[str, str]):
    """The headers of an ASGI scope by their names, in any case. Values of repeated headers are joined, as Django does."""

    __slots__ = ("_values",)

    def __init__(self, scope: Scope) -> None:
        self._values: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            # Django ignores such names, because proxies confuse them with names with hyphens.
            if b"_" not in name:
                self._values[name] = value if name not in self._values else b"%b,%b" % (self._values[name], value)

    def __getitem__(self, name: str) -> str:
        found: str | None = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        found = self._values.get(name.lower().encode("latin-1", "replace"))
        return default if found is None else found.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1").title() for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


class ProtocolRequest(ASGIRequest):
    """``META`` is built when it is first used, usually never. ``headers`` needs no ``META``."""

    def __init__(self, scope: Scope, body: BinaryIO) -> None:
        # Instead of ASGIRequest's, which decodes all headers into META.
        self.scope = cast(Any, scope)
        self._post_parse_error = self._read_started = False
        self._stream = body
        self.resolver_match = None
        self.method = scope["method"]
        self.path = scope["path"]
        self.script_name = get_script_prefix(cast(Any, scope))
        self.path_info = self.path.removeprefix(self.script_name)

    @functools.cached_property
    def _complete(self) -> ASGIRequest:
        return ASGIRequest(self.scope, io.BytesIO())

    @functools.cached_property
    def META(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Django's name
        return {**self._complete.META, "agenthost.request_id": cast(Any, self.scope)["agenthost"]["request_id"]}

    @functools.cached_property
    def headers(self) -> Headers:  # type: ignore[override]
        return Headers(cast(Scope, self.scope))

    @functools.cached_property
    def content_type(self) -> str | None:  # type: ignore[override]
        return self._complete.content_type

    @functools.cached_property
    def content_params(self) -> dict[str, str] | None:  # type: ignore[override]
        return self._complete.content_params
