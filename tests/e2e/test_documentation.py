"""The API documentation against a running server: every example, and requests generated from the schemas.

The server has the demo agent and nothing else, as after `ops/quickstart`, but one that does not take its time.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from agents_app import registry
from sessions_app.aap.openapi.description import EVENTS, JSON, Description, Example, Operation
from sessions_app.aap.openapi.document import document
from sessions_app.aap.openapi.routes import routes
from sessions_app.core.base.json_schema import Components
from tests.e2e import generators, sse
from tests.e2e import server as servers
from tests.e2e.client import TIMEOUT
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

VERSIONS = sorted(routes())
FIELDS = {**sse.FIELDS, "session_start": {"sessionId"}}
IDS = re.compile(r"\b(?:sess_[\w-]+|call_[\w-]+|[0-9a-f]{28})(?![\w-])")


@functools.cache
def described(version: int) -> Description:
    return routes()[version].description()


@functools.cache
def schemas(version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(version))
    return found


@pytest.fixture(scope="module", params=servers.shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp(f"documented-{request.param}")
    agents = [each for each in registry.BUILTIN_FILE.read_text().split("[[agents]]") if 'name = "demo"' in each]
    demo = directory / "demo.toml"
    demo.write_text("[[agents]]" + agents[0].partition("# Served only")[0].replace("delay = 0.03", "delay = 0"))
    variables = {"AGENTHOST_AGENTS_FILE": str(demo), **servers.DEFAULT_LEASES}
    with servers.running(request.param, directory, _model_server.url, environment=variables) as running:
        yield running


# --- an example, and the examples before it ---

Entry = tuple[tuple[str, str], Operation, Example]


def examples(version: int) -> list[Entry]:
    return [
        (place, operation, example)
        for place, operation in described(version).operations.items()
        for example in operation.examples
    ]


def prerequisites(version: int, entry: Entry) -> list[Entry]:
    """What has to happen for the example to mean something, and the example itself."""
    chain = [entry]
    while chain[0][2].after:
        before = [each for each in examples(version) if each[2].name == chain[0][2].after]
        assert len(before) == 1, f"which {chain[0][2].after}?"
        chain.insert(0, before[0])
    return chain


class ExampleRunner:
    """Sends examples in order, and replaces the documented ids with those from the server."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._real: dict[str, str] = {}

    def send(self, entry: Entry) -> httpx.Response:
        (method, path), _operation, example = entry
        path = path.replace("{session_id}", self._session()) if "{" in path else path
        body = None if example.body is None else json.loads(self._with_real_ids(json.dumps(example.body)))
        query = {name: self._with_real_ids(value) for name, value in example.query.items()}
        response = self._client.request(method, path, json=body, params=query)
        documented = example.answer if isinstance(example.answer, str) else json.dumps(example.answer)
        for one, real in zip(_ids(documented), _ids(response.text), strict=False):
            self._real.setdefault(one, real)
        return response

    def _session(self) -> str:
        return next(real for real in self._real.values() if real.startswith("sess_"))

    def _with_real_ids(self, text: str) -> str:
        return IDS.sub(lambda found: self._real[found[0]], text)


def _ids(text: str) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(IDS.findall(text)))


def compared(answer: Any) -> Any:
    """An answer without what differs each time: ids, and where the deltas of one text were cut."""
    if not isinstance(answer, str):
        return json.loads(IDS.sub("(id)", json.dumps(answer)))
    events: list[tuple[str, Any]] = []
    for event in sse.parse(IDS.sub("(id)", answer).encode(), FIELDS):
        if events and "delta" in event.data and events[-1][0] == event.name:
            events[-1] = (event.name, {"delta": events[-1][1]["delta"] + event.data["delta"]})
        else:
            events.append((event.name, event.data))
    return events


def fits(version: int, declared: Any, value: Any) -> None:
    """Check ``value`` against the schema of a declared type; of a stream, each event."""
    schema = Components(described(version).replaced).schema(declared)
    components = schemas(version)["components"]
    if not isinstance(value, str):
        Draft202012Validator({**schema, "components": components}).validate(value)
        return
    kinds = components["schemas"][schema["$ref"].rpartition("/")[2]]["discriminator"]["mapping"]
    for event in sse.parse(value.encode(), FIELDS):
        written = {"id": event.id, "event": event.name, "data": event.written}
        Draft202012Validator({**schema, "components": components}).validate(written)
        shape = components["schemas"][kinds[event.name].rpartition("/")[2]]
        inside = shape["properties"]["data"]["contentSchema"]
        Draft202012Validator({**inside, "components": components}).validate(event.data)


def run_example(server: Server, version: int, entry: Entry) -> None:
    """Run the example and the ones before it, and compare the response with the documented one."""
    _place, operation, example = entry
    # Its own tenant where a list would show what other examples left.
    key = server.new_tenant().key if "sessions" in (example.answer or ()) else server.keys.alice
    base, bearer = f"{server.origin()}/aap/v{version}", {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base, headers=bearer, timeout=TIMEOUT, trust_env=False, verify=False) as client:
        runner = ExampleRunner(client)
        for each in prerequisites(version, entry):
            response = runner.send(each)
            assert response.status_code == each[2].status, response.text
    form = response.headers.get("content-type", "").partition(";")[0]
    answer = response.text if form == EVENTS else response.json() if form == JSON else None
    assert compared(answer) == compared(example.answer)
    if answer is not None:
        fits(version, operation.answers[example.status].forms[form], answer)
        fits(version, operation.answers[example.status].forms[form], example.answer)
    if example.body is not None and operation.body is not None:
        fits(version, operation.body, example.body)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_documented_example_has_the_documented_response(server: Server, version: int) -> None:
    """All at once: the stories have nothing to do with each other."""
    entries = examples(version)
    with ThreadPoolExecutor(len(entries)) as threads:
        running = [threads.submit(run_example, server, version, each) for each in entries]
    failed = [
        f"{each[1].name}, {each[2].name}: {run.exception()}"
        for each, run in zip(entries, running, strict=True)
        if run.exception()
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_operation_that_answers_with_a_body_has_an_example(version: int) -> None:
    for (method, path), operation in described(version).operations.items():
        answered = {(each.status, EVENTS if isinstance(each.answer, str) else JSON) for each in operation.examples}
        for status, answer in operation.answers.items():
            for form in answer.forms:
                assert (status, form) in answered, f"{method} {path} has no example of {status} {form}"


# --- requests made from the schemas ---

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)


def asked(server: Server, directory: Path, version: int, phases: str, most: int, seconds: float) -> str:
    """What schemathesis finds wrong with the answers of this version; nothing if all is well."""
    command = [
        str(Path(sys.executable).with_name("st")),
        *("run", f"{server.origin()}/docs/openapi-v{version}.json", "--header", f"Authorization: Bearer {server.keys.alice}"),
        *("--phases", phases, "--checks", ",".join(CHECKS), "--max-examples", str(most), "--generation-deterministic"),
        *("--workers", "1", "--request-timeout", "30", "--warnings", "off", "--no-color"),
    ]
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "SCHEMATHESIS_HOOKS": "tests.e2e.schema_requests",
    }
    # It keeps notes in the directory where it runs.
    own = directory / f"v{version}"
    own.mkdir()
    done = subprocess.run(command, cwd=own, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    return "" if done.returncode == 0 else f"version {version}:\n{done.stdout[-12_000:]}\n{done.stderr[-2_000:]}"


def asked_in_versions(server: Server, directory: Path, versions: list[int], phases: str, most: int, seconds: float) -> str:
    with ThreadPoolExecutor(len(versions)) as threads:
        found = threads.map(lambda version: asked(server, directory, version, phases, most, seconds), versions)
        return "\n\n".join(filter(None, found))


@pytest.mark.parametrize("server", servers.shapes()[-1:], indirect=True)
@pytest.mark.parametrize(
    "versions", [VERSIONS[-1:], pytest.param(VERSIONS[:-1], marks=pytest.mark.slow)], ids=["newest", "older"]
)
def test_no_request_made_from_the_schemas_meets_an_undocumented_answer(
    server: Server, tmp_path: Path, versions: list[int]
) -> None:
    assert not (found := asked_in_versions(server, tmp_path, versions, "examples,coverage", 1, 500)), found


@pytest.mark.slow
def test_no_request_made_at_random_meets_an_undocumented_answer(server: Server, tmp_path: Path) -> None:
    assert not (found := asked_in_versions(server, tmp_path, VERSIONS, "fuzzing,stateful", 40, 280)), found


@pytest.mark.slow
@pytest.mark.parametrize("server", servers.shapes()[-1:], indirect=True)
def test_packages_that_openapi_python_client_makes_work(server: Server, tmp_path: Path) -> None:
    packages = generators.PythonPackages(tmp_path)
    for version in VERSIONS:
        packages.generate(downloaded(server, version, tmp_path), f"client_v{version}")
        packages.use(f"client_v{version}", version, f"{server.origin()}/aap/v{version}", server.keys.alice)


@pytest.mark.slow
@pytest.mark.parametrize("server", servers.shapes()[-1:], indirect=True)
def test_types_that_openapi_typescript_makes_work(server: Server, tmp_path: Path) -> None:
    packages = generators.NodePackages(tmp_path)
    for version in VERSIONS:
        packages.generate(downloaded(server, version, tmp_path), version)
        packages.use(version, f"{server.origin()}/aap/v{version}", server.keys.alice)


def downloaded(server: Server, version: int, directory: Path) -> Path:
    """The OpenAPI document as served."""
    found = directory / f"openapi-v{version}.json"
    found.write_bytes(httpx.get(f"{server.origin()}/docs/openapi-v{version}.json", timeout=TIMEOUT).raise_for_status().content)
    return found
