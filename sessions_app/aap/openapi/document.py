"""The OpenAPI document of one version: what its routes and views are, with the words of its description.

drf-spectacular walks the routes and asks each view; what it would guess from serializers, which this API has
none of, comes from the version's description. A route without a description, or the other way round, is an error.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

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
from sessions_app.aap.openapi.schemas import Schema, ref
from sessions_app.aap.views import Endpoint

_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Request-Id": ("The request's id, as it stands in the server's log.", {"type": "string"}),
    "X-Turn-Id": ("The turn: the same before and after the client was asked.", {"type": "string"}),
    "Location": ("The address of the new session.", {"type": "string", "format": "uri-reference"}),
    "Retry-After": ("The seconds after which asking again makes sense.", {"type": "integer", "minimum": 0}),
    "RateLimit-Policy": ("The limits that apply.", {"type": "string"}),
    "RateLimit": ("What is left of each, and in how many seconds there is more.", {"type": "string"}),
    "WWW-Authenticate": ("", {"type": "string", "const": "Bearer"}),
}
_PROBLEM: Schema = {
    "type": "object",
    "description": "A refusal, as RFC 9457 writes it.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"const": "about:blank", "description": "Always this: the status says what kind of problem it is."},
        "title": {"type": "string", "enum": sorted(set(problems.TITLES.values()))},
        "status": {"type": "integer", "enum": sorted(problems.TITLES)},
        "detail": {"type": "string", "description": "What is wrong, for people."},
        "instance": {"type": "string", "description": "The request's id, as in X-Request-Id."},
        "errors": {
            "type": "array",
            "description": "Where the body is at fault: each place and what is wrong with it.",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "format": "json-pointer", "description": "Into the request's body."},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


_KEY = "key"
_SECURITY: Schema = {
    _KEY: {"type": "http", "scheme": "bearer", "description": "A key of this server, as its operator issued it."},
}


class UndescribedError(Exception):
    """Routes and description do not tell of the same operations."""


class _Operation(AutoSchema):
    """What one method of one view does."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation

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
        return [dict(parameter) for parameter in self._operation.parameters]

    def _get_request_body(self, direction: str = "request") -> Schema | None:  # noqa: ARG002 - spectacular's signature
        body = self._operation.body
        if body is None:
            return None
        examples = {each.name: {"summary": each.summary, "value": each.body} for each in self._operation.examples}
        return {"required": self._operation.body_required, "content": {JSON: {"schema": body, "examples": examples}}}

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Schema]:  # noqa: ARG002 - spectacular's signature
        operation = self._operation
        found = {str(status): _answer(answer, status, operation.examples) for status, answer in operation.answers.items()}
        for status, met in sorted(_by_status(_refusals(operation)).items()):
            found[str(status)] = _refused(met)
        return found


class _Generator(SchemaGenerator):
    def __init__(self, description: Description, patterns: list[Any]) -> None:
        super().__init__(patterns=patterns)  # type: ignore[no-untyped-call]  # spectacular has no types here
        self._description = description
        self._left = dict(description.operations)

    def _get_paths_and_endpoints(self) -> list[tuple[str, str, str, APIView]]:
        found = []
        for path, path_regex, method, view in super()._get_paths_and_endpoints():  # type: ignore[no-untyped-call]  # spectacular has no types here
            operation = self._left.pop((method, path), None)
            if operation is None:
                raise UndescribedError(f"version {self._description.version}: {method} {path} has no description")
            self._set_schema_to_view(view, _Operation(operation))  # type: ignore[no-untyped-call]  # spectacular has no types here
            found.append((path, path_regex, method, view))
        return found

    def get_schema(self, request: Any = None, public: bool = True) -> Schema:
        document: Schema = super().get_schema(request, public)  # type: ignore[no-untyped-call]  # spectacular has no types here
        if self._left:
            raise UndescribedError(f"version {self._description.version}: described but not there: {sorted(self._left)}")
        version = self._description.version
        document["info"] = {
            "title": f"Agenthost: AAP version {version}",
            "version": str(version),
            "description": self._description.text,
        }
        document["servers"] = [{"url": f"/aap/v{version}"}]
        document["tags"] = [{"name": name, "description": text} for name, text in self._description.groups.items()]
        components = document.setdefault("components", {})
        components["schemas"] = {**self._description.schemas, "Problem": _PROBLEM}
        components["securitySchemes"] = _SECURITY
        components["headers"] = {name: _header(name) for name in _HEADERS}
        return document


def _answer(answer: Answer, status: int, examples: Iterable[Example]) -> Schema:
    shown: Schema = {"description": answer.meaning, "headers": _headers(answer.headers)}
    if answer.forms:
        shown["content"] = {
            form: {
                "schema": schema,
                "examples": {
                    each.name: {"summary": each.summary, "value": each.answer}
                    for each in examples
                    if each.status == status and isinstance(each.answer, str) is (form == EVENTS)
                },
            }
            for form, schema in answer.forms.items()
        }
    return shown


def _refusals(operation: Operation) -> list[Refusal]:
    return [*refusals.of_everything(), *(refusals.of_bodies() if operation.body is not None else []), *operation.refusals]


def _by_status(met: Iterable[Refusal]) -> dict[int, list[Refusal]]:
    found: dict[int, list[Refusal]] = {}
    for each in met:
        found.setdefault(each.problem.status, []).append(each)
    return found


def _refused(met: list[Refusal]) -> Schema:
    carried = [set(each.problem.headers) for each in met]
    # A header that only some of them carry is not always there.
    names = [
        name if all(name in one for one in carried) else f"{name}?" for name in _HEADERS if any(name in one for one in carried)
    ]
    lines = [f"- {each.meaning}" for each in met] if len(met) > 1 else [met[0].meaning]
    return {
        "description": "\n".join(lines),
        "headers": _headers(tuple(names)),
        "content": {
            problems.CONTENT_TYPE: {
                "schema": ref("Problem"),
                "examples": {each.name: {"summary": each.meaning, "value": each.document} for each in met},
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
    text, schema = _HEADERS[name]
    return {**({"description": text} if text else {}), "required": required, "schema": schema}


_lock = threading.Lock()


@functools.cache
def _made(version: int) -> bytes:
    described = routes()[version]
    document = _Generator(described.description(), described.patterns).get_schema()
    return json.dumps(document, ensure_ascii=False).encode()


def document(version: int) -> bytes:
    """JSON; KeyError if no such version is routed. Made once a process: nothing it depends on changes while it runs."""
    # The library keeps what it is doing in module variables.
    with _lock:
        return _made(version)
