"""The OpenAPI document of the management API. A test compares its addresses and methods with the routes."""

from __future__ import annotations

import functools
import json

from sessions_app.aap import problems
from sessions_app.aap.management.operations import EVERY, OPERATIONS, Operation
from sessions_app.core.base.json_schema import Components, Schema

_JSON = "application/json"


@functools.cache
def document() -> bytes:
    components = Components()
    problem = components.schema(problems.ProblemDocument)
    paths: dict[str, Schema] = {}
    for (method, address), operation in OPERATIONS.items():
        paths.setdefault(address, {})[method.lower()] = _operation(address, operation, components, problem)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Agenthost: management",
            "version": "1",
            "description": "What applications manage with a key, beside their sessions.",
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key of this server."}},
        },
    }
    return json.dumps(whole, ensure_ascii=False).encode()


def _operation(address: str, operation: Operation, components: Components, problem: Schema) -> Schema:
    answers: Schema = {}
    for status, (meaning, declared) in operation.answers.items():
        answers[str(status)] = {"description": meaning}
        if operation.file:
            answers[str(status)]["content"] = {kind: {} for kind in operation.file}
        if declared is not None:
            answers[str(status)]["content"] = {_JSON: {"schema": components.schema(declared)}}
    for status, meaning in sorted({**EVERY, **operation.refusals}.items()):
        answers[str(status)] = {"description": meaning, "content": {problems.CONTENT_TYPE: {"schema": problem}}}
    found: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.text,
        "responses": answers,
    }
    names = [part[1:-1] for part in address.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in operation.queries.items()
    ]
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": components.schema(operation.body)}}}
    return found
