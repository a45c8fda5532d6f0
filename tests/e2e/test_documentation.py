"""The API's documentation against a server that runs: every example, and requests made from the schemas.

The server is as `ops/quickstart` leaves it: the examples need the demo agent and nothing else.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from sessions_app.aap.openapi.description import EVENTS, JSON, Description, Example, Operation
from sessions_app.aap.openapi.document import document
from sessions_app.aap.openapi.routes import routes
from tests.e2e import server as servers
from tests.e2e import sse
from tests.e2e.client import TIMEOUT
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer

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
    with servers.running(request.param, directory, _model_server.url, environment={"AGENTHOST_AGENTS_FILE": ""}) as running:
        yield running


# --- a story: an example and those that came before it ---

Told = tuple[tuple[str, str], Operation, Example]


def examples(version: int) -> list[Told]:
    return [
        (place, operation, example)
        for place, operation in described(version).operations.items()
        for example in operation.examples
    ]


def story(version: int, told: Told) -> list[Told]:
    """What has to happen for the example to mean something, and the example itself."""
    chain = [told]
    while chain[0][2].after:
        before = [each for each in examples(version) if each[2].name == chain[0][2].after]
        assert len(before) == 1, f"which {chain[0][2].after}?"
        chain.insert(0, before[0])
    return chain


class Telling:
    """Sends examples one after the other; ids of the documentation stand for those that the server gave."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._real: dict[str, str] = {}

    def send(self, told: Told) -> httpx.Response:
        (method, path), _operation, example = told
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


def fits(version: int, schema: dict[str, Any], value: Any) -> None:
    """``value`` is what the schema says; a stream is looked at event by event."""
    components = schemas(version)["components"]
    Draft202012Validator({**schema, "components": components}).validate(value)
    if not isinstance(value, str):
        return
    event = components["schemas"][schema["$ref"].rpartition("/")[2]]["x-event"]
    for one in sse.parse(value.encode(), FIELDS):
        written = {"id": one.id, "event": one.name, "data": one.written}
        Draft202012Validator({**event, "components": components}).validate(written)
        shape = components["schemas"][event["discriminator"]["mapping"][one.name].rpartition("/")[2]]
        inside = shape["properties"]["data"]["contentSchema"]
        Draft202012Validator({**inside, "components": components}).validate(one.data)


def tell(server: Server, version: int, told: Told) -> None:
    """The example's story up to its end, and what the server said against what is documented."""
    _place, operation, example = told
    # Its own tenant where a list would show what other examples left.
    key = server.new_tenant().key if "sessions" in (example.answer or ()) else server.keys.alice
    base, bearer = f"{server.origin()}/aap/v{version}", {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base, headers=bearer, timeout=TIMEOUT, trust_env=False) as client:
        telling = Telling(client)
        for each in story(version, told):
            response = telling.send(each)
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
def test_every_example_works_and_its_answer_is_what_the_server_says(server: Server, version: int) -> None:
    """All at once: the demo agent takes its time, and the stories have nothing to do with each other."""
    told = examples(version)
    with ThreadPoolExecutor(len(told)) as threads:
        running = [threads.submit(tell, server, version, each) for each in told]
    failed = [
        f"{each[1].name}, {each[2].name}: {run.exception()}" for each, run in zip(told, running, strict=True) if run.exception()
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_operation_that_answers_with_a_body_has_an_example(version: int) -> None:
    for (method, path), operation in described(version).operations.items():
        answered = {(each.status, EVENTS if isinstance(each.answer, str) else JSON) for each in operation.examples}
        for status, answer in operation.answers.items():
            for form in answer.forms:
                assert (status, form) in answered, f"{method} {path} has no example of {status} {form}"
