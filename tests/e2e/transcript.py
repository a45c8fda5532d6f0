"""Transcripts: text files with requests and responses, which the tests send and compare.

    === the model, asked: What floats?
    [{"do": "text", "deltas": ["Wood."]}]          one line for each answer; the steps are tests.fakes.steps'

    >>> POST /sessions
    {"agent": {"name": "echo"}}                    the body as it is sent; nothing if there is none
    <<< 201 application/json, Location: /aap/v3/sessions/<session 1>
    {"sessionId":"<session 1>"}                    the body as it came, byte for byte

Playing it sends the requests and returns the text with the answers that came, so that a test needs one comparison.
`AGENTHOST_TEST_RECORD=yes ops/test tests/e2e/test_aap_transcripts.py` stores this text in the files. Only what
no two runs share is masked: ids that the server makes, positions, cursors. White space and comments that keep a silent
connection alive are left out.

A model's answer may stop at a gate: it is opened when the client has what was said before it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import httpx

from tests.e2e.client import TIMEOUT
from tests.fakes.model_server import ModelServer

_MODEL = "=== the model, asked: "
_REQUEST = ">>> "
_ANSWER = "<<< "
_HEADERS = ("Location", "Allow", "WWW-Authenticate")

_SESSION = re.compile(r"sess_[A-Za-z0-9_-]{16,}")
_MASKED_SESSION = re.compile(r"<session (\d+)>")
_POSITION = re.compile(r"^id: ([0-9a-f]+)$", re.MULTILINE)
_REQUEST_ID = re.compile(r'"instance":"req_[A-Za-z0-9_-]+"')
_CURSOR = re.compile(r'("next(?:Cursor)?"):"([A-Za-z0-9_-]+)"')
_DELTA = re.compile(r"^event: (?:text|thinking)_delta\n", re.MULTILINE)
_COMMENT = re.compile(r"^:[^\n]*\n\n?", re.MULTILINE)


@dataclass
class Speech:
    """The model's answers to one message."""

    prompt: str
    answers: list[str]


@dataclass
class Exchange:
    method: str
    path: str
    body: str


Scene = Speech | Exchange


def parse(text: str) -> tuple[str, list[Scene]]:
    """The text before the first scene, and the scenes. Recorded responses are ignored."""
    opening: list[str] = []
    scenes: list[Scene] = []
    listening = True
    for line in text.split("\n"):
        if line.startswith(_MODEL):
            scenes.append(Speech(line.removeprefix(_MODEL), []))
            listening = True
        elif line.startswith(_REQUEST):
            method, _, path = line.removeprefix(_REQUEST).partition(" ")
            scenes.append(Exchange(method, path, ""))
            listening = True
        elif line.startswith(_ANSWER):
            listening = False
        elif not scenes:
            opening.append(line)
        elif listening and line:
            scene = scenes[-1]
            if isinstance(scene, Speech):
                scene.answers.append(line)
            else:
                assert not scene.body, f"a body is one line: {line!r}"
                scene.body = line
    return "\n".join(opening).strip(), scenes


class Play:
    """Runs a transcript with one key."""

    def __init__(self, origin: str, key: str, base: str, model: ModelServer, sessions: list[str]) -> None:
        self._http = httpx.Client(
            base_url=origin + base, headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT, trust_env=False, verify=False
        )
        self._model = model
        self._sessions = sessions
        """Ids in the order of their first appearance, numbered from 1."""
        self._cursors: list[str] = []
        self._gates: list[str] = []

    def perform(self, text: str) -> str:
        """The transcript of this run."""
        opening, scenes = parse(text)
        written = [opening]
        with self._http:
            written += [self._speech(scene) if isinstance(scene, Speech) else self._exchange(scene) for scene in scenes]
        return "\n\n".join(written) + "\n"

    def _speech(self, speech: Speech) -> str:
        answers = [json.loads(line) for line in speech.answers]
        self._model.script(*answers, name=speech.prompt)
        self._gates += [step["name"] for answer in answers for step in answer if step["do"] == "gate"]
        return "\n".join([_MODEL + speech.prompt, *speech.answers])

    def _exchange(self, exchange: Exchange) -> str:
        headers = {"Content-Type": "application/json"} if exchange.body else {}
        path, body = self._unmasked(exchange.path), self._unmasked(exchange.body)
        with self._http.stream(exchange.method, path, content=body.encode(), headers=headers) as response:
            came = self._read(response)
        head = f"{response.status_code} {response.headers.get('Content-Type', '')}".strip()
        # Every response has this header; it is recorded only where it differs.
        shown = [name for name in _HEADERS if name in response.headers and (name != "Allow" or response.status_code == 405)]
        head += "".join(f", {name}: {response.headers[name]}" for name in shown)
        lines = [f"{_REQUEST}{exchange.method} {exchange.path}", *([exchange.body] if exchange.body else [])]
        lines.append(_ANSWER + self._masked(head))
        if came:
            lines.append(self._masked(self._wire(response, came)))
        return "\n".join(lines)

    def _read(self, response: httpx.Response) -> str:
        came, opened = "", 0
        for chunk in response.iter_text():
            came += chunk
            for _ in range(len(_DELTA.findall(came)) - opened):
                opened += 1
                if self._gates:
                    self._model.open_gate(self._gates.pop(0))
        return came

    @staticmethod
    def _wire(response: httpx.Response, came: str) -> str:
        """The body without keep-alive comments and white space, and without trailing line ends."""
        if response.headers["Content-Type"].startswith("text/event-stream"):
            came = _COMMENT.sub("", came)
            assert came.endswith("\n\n"), "an event ends with an empty line"
            assert not came.endswith("\n\n\n")
            positions = _POSITION.findall(came)
            assert positions == sorted(set(positions)), "positions grow"
            return came[:-2]
        assert came == came.rstrip("\n"), "nothing follows the object"
        return came.lstrip("\n")

    def _masked(self, text: str) -> str:
        text = _POSITION.sub("id: <position>", _REQUEST_ID.sub('"instance":"<request>"', text))
        text = _SESSION.sub(lambda found: f"<session {self._number(found.group())}>", text)
        return _CURSOR.sub(self._masked_cursor, text)

    def _masked_cursor(self, found: re.Match[str]) -> str:
        if found[2] not in self._cursors:
            self._cursors.append(found[2])
        return f'{found[1]}:"<cursor {self._cursors.index(found[2]) + 1}>"'

    def _number(self, session_id: str) -> int:
        if session_id not in self._sessions:
            self._sessions.append(session_id)
        return self._sessions.index(session_id) + 1

    def _unmasked(self, text: str) -> str:
        text = _MASKED_SESSION.sub(lambda found: self._sessions[int(found[1]) - 1], text)
        return re.sub(r"<cursor (\d+)>", lambda found: self._cursors[int(found[1]) - 1], text)
