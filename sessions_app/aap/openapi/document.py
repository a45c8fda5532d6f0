"""Makes the OpenAPI document of one version from its routes, its views and its description.

drf-spectacular walks the routes and asks each view. This API has no serializers: types and texts come from the
version's description. A route without a description, or a description without a route, is an error.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from django.conf import settings
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from rest_framework.views import APIView

from sessions_app.aap import problems
from sessions_app.aap.auth import KeyAuthentication, PublicMetaAuthentication
from sessions_app.aap.openapi import refusals
from sessions_app.aap.openapi.description import EVENTS, JSON, Answer, Description, Example, Operation
from sessions_app.aap.openapi.refusals import Refusal
from sessions_app.aap.openapi.routes import routes
from sessions_app.aap.views import Endpoint
from sessions_app.core.base.json_schema import Components, Schema
from sessions_app.core.base.shapes import Rule

_HEADERS: Mapping[str, tuple[str, Any]] = {
    "X-Request-Id": ("The request's id, as in the server's log.", str),
    "X-Turn-Id": ("The turn: the same before and after it waited for the client.", str),
    "Location": ("The address of the new session.", Annotated[str, Rule(format="uri-reference")]),
    "Retry-After": ("Seconds to wait before the next attempt.", Annotated[int, Rule(minimum=0)]),
    "RateLimit-Policy": ("The limits that apply.", str),
    "RateLimit": ("How much of each limit is left, and the seconds until it is renewed.", str),
    "WWW-Authenticate": ("", Literal["Bearer"]),
}


_KEY = "key"
_SECURITY: Schema = {
    _KEY: {"type": "http", "scheme": "bearer", "description": "A key of this server, as its operator issued it."},
}


class UndescribedError(Exception):
    """The routes and the description have different operations."""


class _Operation(AutoSchema):
    """The schema of one method of one view."""

    def __init__(self, operation: Operation, components: Components) -> None:
        super().__init__()
        self._operation = operation
        self._components = components

    def get_operation_id(self) -> str:
        return self._operation.name

    def get_summary(self) -> str:
        return self._operation.summary

    def get_description(self) -> str:  # type: ignore[override]  # as spectacular overrides it
        assert isinstance(self.view, Endpoint)
        scope = self.view.scopes.get(self.method)
        return self._operation.text + (f"\n\nThe key needs the scope `{scope}`." if scope else "")

    def get_auth(self) -> list[Schema]:
        [authenticator] = self.view.get_authenticators()
        assert isinstance(authenticator, KeyAuthentication)
        public = settings.AGENTHOST_PUBLIC_META and isinstance(authenticator, PublicMetaAuthentication)
        return [{_KEY: []}, {}] if public else [{_KEY: []}]

    def get_tags(self) -> list[str]:
        return [self._operation.group]

    def _get_parameters(self) -> list[Schema]:
        return [
            {
                "name": each.name,
                "in": each.place,
                **({"description": each.text} if each.text else {}),
                **({"required": True} if each.required else {}),
                "schema": self._components.schema(each.declared),
            }
            for each in self._operation.parameters
        ]

    def _get_request_body(self, direction: str = "request") -> Schema | None:  # noqa: ARG002 - spectacular's signature
        body = self._operation.body
        if body is None:
            return None
        examples = {each.name: {"summary": each.summary, "value": each.body} for each in self._operation.examples}
        content = {JSON: {"schema": self._components.schema(body), "examples": examples}}
        return {"required": self._operation.body_required, "content": content}

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Schema]:  # noqa: ARG002 - spectacular's signature
        operation = self._operation
        found = {
            str(status): _answer(answer, status, operation.examples, self._components)
            for status, answer in operation.answers.items()
        }
        problem = self._components.schema(problems.ProblemDocument)
        for status, met in sorted(_by_status(_refusals(operation)).items()):
            found[str(status)] = _refused(met, problem)
        return found


class _Generator(SchemaGenerator):
    def __init__(self, description: Description, patterns: list[Any]) -> None:
        super().__init__(patterns=patterns)  # type: ignore[no-untyped-call]  # spectacular has no types here
        self._description = description
        self._left = dict(description.operations)
        self._components = Components(description.replaced)

    def _get_paths_and_endpoints(self) -> list[tuple[str, str, str, APIView]]:
        found = []
        for path, path_regex, method, view in super()._get_paths_and_endpoints():  # type: ignore[no-untyped-call]  # spectacular has no types here
            operation = self._left.pop((method, path), None)
            if operation is None:
                raise UndescribedError(f"version {self._description.version}: {method} {path} has no description")
            self._set_schema_to_view(view, _Operation(operation, self._components))  # type: ignore[no-untyped-call]  # spectacular has no types here
            found.append((path, path_regex, method, view))
        return found

    def get_schema(self, request: Any = None, public: bool = True) -> Schema:
        document: Schema = super().get_schema(request, public)  # type: ignore[no-untyped-call]  # spectacular has no types here
        if self._left:
            raise UndescribedError(f"version {self._description.version}: described, but without a route: {sorted(self._left)}")
        version = self._description.version
        document["info"] = {
            "title": f"Agenthost: AAP version {version}",
            "version": str(version),
            "description": self._description.text,
        }
        document["servers"] = [{"url": f"/aap/v{version}"}]
        document["tags"] = [{"name": name, "description": text} for name, text in self._description.groups.items()]
        components = document.setdefault("components", {})
        components["schemas"] = self._components.schemas
        components["securitySchemes"] = _SECURITY
        components["headers"] = {name: _header(name) for name in _HEADERS}
        return document


def _answer(answer: Answer, status: int, examples: Iterable[Example], components: Components) -> Schema:
    shown: Schema = {"description": answer.meaning, "headers": _headers(answer.headers)}
    if answer.forms:
        shown["content"] = {
            form: {
                "schema": components.schema(declared),
                "examples": {
                    each.name: {"summary": each.summary, "value": each.answer}
                    for each in examples
                    if each.status == status and isinstance(each.answer, str) is (form == EVENTS)
                },
            }
            for form, declared in answer.forms.items()
        }
    return shown


def _refusals(operation: Operation) -> list[Refusal]:
    return [*refusals.of_everything(), *(refusals.of_bodies() if operation.body is not None else []), *operation.refusals]


def _by_status(refusals_found: Iterable[Refusal]) -> dict[int, list[Refusal]]:
    found: dict[int, list[Refusal]] = {}
    for each in refusals_found:
        found.setdefault(each.problem.status, []).append(each)
    return found


def _refused(found: list[Refusal], problem: Schema) -> Schema:
    headers = [set(each.problem.headers) for each in found]
    # A header that only some of the refusals have is optional.
    names = [
        name if all(name in one for one in headers) else f"{name}?" for name in _HEADERS if any(name in one for one in headers)
    ]
    lines = [f"- {each.meaning}" for each in found] if len(found) > 1 else [found[0].meaning]
    return {
        "description": "\n".join(lines),
        "headers": _headers(tuple(names)),
        "content": {
            problems.CONTENT_TYPE: {
                "schema": problem,
                "examples": {each.name: {"summary": each.meaning, "value": each.document} for each in found},
            }
        },
    }


def _headers(names: tuple[str, ...]) -> Schema:
    shown: Schema = {}
    for name in ("X-Request-Id", *names):
        plain = name.removesuffix("?")
        shown[plain] = {"$ref": f"#/components/headers/{plain}"} if name == plain else _header(plain, required=False)
    return shown


def _header(name: str, *, required: bool = True) -> Schema:
    text, declared = _HEADERS[name]
    return {**({"description": text} if text else {}), "required": required, "schema": Components().schema(declared)}


_lock = threading.Lock()


@functools.cache
def _made(version: int) -> bytes:
    described = routes()[version]
    document = _Generator(described.description(), described.patterns).get_schema()
    return json.dumps(document, ensure_ascii=False).encode()


def document(version: int) -> bytes:
    """The document as JSON; KeyError if this version is not served. Made once per process."""
    # The library keeps its state in module variables.
    with _lock:
        return _made(version)
