"""An AHP client: connects, mirrors states, dispatches actions, reconnects.

For each channel it keeps the state that the host has confirmed, made by the protocol's reducers, and its own actions that the
host has not confirmed yet. It shows the state with these actions applied.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from agents_app import exact_json
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.for_clients import CURRENT

State = dict[str, Any]
Envelope = dict[str, Any]


class Disconnected(Exception):
    """The connection has ended. ``code``: its closing code."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        super().__init__(f"the connection has ended ({code})")


@dataclass
class Mirror:
    """A channel as this client knows it."""

    confirmed: State
    from_seq: int
    version: ClientVersion
    ahead: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Dispatched actions that the host has not echoed yet, with the client's numbers."""

    @property
    def shown(self) -> State:
        """The confirmed state with the dispatched actions applied."""
        state = self.confirmed
        for _seq, action in self.ahead:
            state = self.version.reduce(state, action, _now())
        return state


class Client:
    """One client. ``seen``: all envelopes, in the order received; ``heard``: all notifications."""

    def __init__(
        self,
        url: str,
        key: str,
        client_id: str,
        *,
        on_frame: Callable[[str], None] | None = None,
        on_envelope: Callable[[Envelope], None] | None = None,
        on_request: Callable[[str, dict[str, Any]], Awaitable[Any]] | None = None,
        version: ClientVersion | Sequence[ClientVersion] = CURRENT,
        hello: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """``version``: several are all offered, and the host's choice counts from then on. ``hello``: see ``initialize``."""
        self._versions = (version,) if isinstance(version, ClientVersion) else tuple(version)
        self.url, self.client_id, self.version = url, client_id, self._versions[0]
        self.hello = dict(hello or {})
        self.mirrors: dict[str, Mirror] = {}
        self.seen: list[Envelope] = []
        self.heard: list[dict[str, Any]] = []
        self.last_seq = 0
        self.closed_with: int | None = None
        self.broken: Exception | None = None
        """The error because of which the client closed the connection."""
        self._key = key
        self._options = options
        self._on_frame, self._on_envelope, self._on_request = on_frame, on_envelope, on_request
        self._answering: set[asyncio.Task[None]] = set()
        self._socket: ClientConnection | None = None
        self._listening: asyncio.Task[None] | None = None
        self._asked: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._ids = itertools.count(1)
        self._seqs = itertools.count(1)
        self._changed = asyncio.Event()

    # --- the connection ---

    async def open(self) -> None:
        """Open the socket, without a handshake."""
        headers = {"Authorization": f"Bearer {self._key}"}
        options = {"additional_headers": headers, "max_size": None, "compression": None, "proxy": None, **self._options}
        self._socket = await connect(self.url, **options)
        self.closed_with = None
        self._listening = asyncio.create_task(self._listen(self._socket))

    async def initialize(self, *subscriptions: str) -> dict[str, Any]:
        """``hello``: further params of every handshake of this client."""
        offers = [offer for version in self._versions for offer in version.offers]
        params: dict[str, Any] = {**self.version.of_root, "protocolVersions": offers, "clientId": self.client_id, **self.hello}
        if subscriptions:
            params["initialSubscriptions"] = list(subscriptions)
        result: dict[str, Any] = await self.request("initialize", params)
        return result

    async def reconnect(self) -> str:
        """Open a new connection and get the events that were missed. Returns the kind of answer: replay or snapshot.

        Of ``hello`` only ``_meta`` is sent again.
        """
        await self.close()
        await self.open()
        seen = {"clientId": self.client_id, "lastSeenServerSeq": self.last_seq, "subscriptions": list(self.mirrors)}
        meta = {"_meta": self.hello["_meta"]} if "_meta" in self.hello else {}
        params = {**self.version.of_root, **seen, **meta}
        result = await self.request("reconnect", params)
        return str(result["type"])

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        await self._ended()

    def cut(self) -> None:
        """Drop the connection without closing it, as a network failure does."""
        assert self._socket is not None
        self._socket.transport.abort()

    async def _ended(self) -> None:
        if self._listening is not None:
            with suppress(asyncio.CancelledError):
                await self._listening

    @property
    def is_connected(self) -> bool:
        return self._listening is not None and not self._listening.done()

    # --- sending ---

    async def send(self, frame: str | bytes) -> None:
        """Send a frame as it is."""
        assert self._socket is not None
        await self._socket.send(frame)

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> asyncio.Future[Any]:
        """Send a request without waiting for its answer, which is the future's result, or its RPCError."""
        id_ = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[id_] = method, answer
        frame = {"jsonrpc": "2.0", "id": id_, "method": method, **({} if params is None else {"params": dict(params)})}
        answer.add_done_callback(lambda _: self._asked.pop(id_, None))
        sending = asyncio.ensure_future(self.send(jsonrpc.encode(frame)))
        sending.add_done_callback(lambda done: None if done.cancelled() else _fail(answer, done.exception()))
        return answer

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        return await self.ask(method, params)

    async def subscribe(self, uri: str) -> State:
        await self.request("subscribe", self.version.of(uri))
        return self.mirrors[uri].confirmed

    async def watch(self, uri: str, **params: Any) -> str:
        """Watch a file or directory, in versions that have watches; the channel of its news, to which this subscribes.

        ``params``: ``recursive``, ``includes``, ``excludes``. After ``reconnect`` watches are gone.
        """
        channel: str = (await self.request("createResourceWatch", {**self.version.of_root, "uri": uri, **params}))["channel"]
        await self.subscribe(channel)
        return channel

    def news(self, channel: str) -> list[tuple[str, str]]:
        """What this watch has reported until now: URIs, each with ``added``, ``updated`` or ``deleted``."""
        of_watch = [each["action"]["changes"]["items"] for each in self.seen if self.version.channel_of(each) == channel]
        return [(item["uri"], item["type"]) for items in of_watch for item in items]

    async def unsubscribe(self, uri: str) -> None:
        self.mirrors.pop(uri, None)
        await self.notify("unsubscribe", self.version.of(uri))

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self.send(jsonrpc.notification(method, dict(params)))

    async def dispatch(self, action: Mapping[str, Any], channel: str | None = None) -> int:
        """Send an action and apply it to the shown state. Returns the number that its echo will have.

        ``channel``: what it changes, in versions where the action does not contain it.
        """
        seq = next(self._seqs)
        envelope = {"action": dict(action), **({} if channel is None else {"channel": channel})}
        mirror = self.mirrors.get(self.version.channel_of(envelope) or "")
        if mirror is not None:
            mirror.ahead.append((seq, dict(action)))
        await self.notify("dispatchAction", {**envelope, "clientSeq": seq})
        return seq

    # --- waiting ---

    async def until(self, condition: Callable[[], Any], seconds: float | None = 30.0) -> Any:
        """Wait until ``condition`` is true, and return its value; it is called after every frame."""
        async with asyncio.timeout(seconds):
            while True:
                self._changed.clear()
                if found := condition():
                    return found
                if not self.is_connected:
                    raise self.broken or Disconnected(self.closed_with)
                await self._changed.wait()

    async def echo(self, seq: int, seconds: float = 30.0) -> Envelope:
        """Wait for the echo or rejection of a dispatched action."""
        found: Envelope = await self.until(lambda: self._echo_of(seq), seconds)
        return found

    def _echo_of(self, seq: int) -> Envelope | None:
        own = {"clientId": self.client_id, "clientSeq": seq}
        return next((each for each in reversed(self.seen) if each.get("origin") == own), None)

    async def ended(self, seconds: float = 30.0) -> int | None:
        """Wait until the connection is closed, and return the closing code."""
        assert self._listening is not None
        await asyncio.wait_for(asyncio.shield(self._listening), seconds)
        return self.closed_with

    def state(self, uri: str) -> State:
        return self.mirrors[uri].confirmed

    def compare(self, uri: str, folded: State, received: State) -> None:
        """Called when a channel is subscribed to again: the state made by reducers here, and the host's snapshot.

        Both are of the same position, so tests can compare them.
        """

    # --- receiving ---

    async def _listen(self, socket: ClientConnection) -> None:
        try:
            async for frame in socket:
                assert isinstance(frame, str)
                if self._on_frame is not None:
                    self._on_frame(frame)
                self._take(exact_json.loads(frame))
                self._changed.set()
        except ConnectionClosed:
            pass
        except Exception as error:
            # An invalid frame: tasks that wait for something get this error.
            self.broken = error
            await socket.close()
        finally:
            self.closed_with = socket.close_code
            for _method, answer in list(self._asked.values()):
                _fail(answer, self.broken or Disconnected(self.closed_with))
            self._changed.set()

    def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "action":
            self._take_envelope(message["params"])
        elif method == "notification":
            self.heard.append(message["params"]["notification"])
        elif method is not None and "id" not in message:
            self.heard.append({"type": method, **message.get("params", {})})
        elif "id" in message and method is None:
            self._take_answer(message)
        elif "id" in message:
            answering = asyncio.create_task(self._answer(message))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)

    async def _answer(self, request: Mapping[str, Any]) -> None:
        """Answer a request of the host: with the result of ``on_request``, or the RPCError that it raises."""
        try:
            if self._on_request is None:
                raise jsonrpc.method_not_found(request["method"])
            result = await self._on_request(request["method"], request.get("params", {}))
        except RPCError as error:
            frame = jsonrpc.error_response(request["id"], error)
        else:
            frame = jsonrpc.response(request["id"], result)
        with suppress(ConnectionClosed):
            await self.send(frame)

    def _take_answer(self, message: dict[str, Any]) -> None:
        method, answer = self._asked.get(message["id"], ("", None))
        if answer is None or answer.done():
            return
        if "error" in message:
            error = message["error"]
            answer.set_exception(RPCError(error["code"], error["message"], error.get("data")))
            return
        result = message["result"]
        match method:
            case "initialize":
                self._adopt(result["protocolVersion"])
                self._take_snapshots(result["snapshots"])
                self.last_seq = max(self.last_seq, result["serverSeq"])
            case "subscribe":
                snapshot = result.get("snapshot")
                if snapshot is None:
                    answer.set_result(result)
                    return
                if (mirror := self.mirrors.get(snapshot["resource"])) is not None:
                    self.compare(snapshot["resource"], mirror.confirmed, snapshot["state"])
                self._take_snapshots([snapshot])
            case "reconnect":
                self._take_missed(result)
        answer.set_result(result)

    def _adopt(self, answered: str) -> None:
        """The version that the host has chosen: the one that offers this, or the first of the same family."""
        family = answered.split(".")[: 2 if answered.startswith("0.") else 1]
        for version in self._versions:
            if answered in version.offers or any(offer.split(".")[: len(family)] == family for offer in version.offers):
                self.version = version
                return

    def _take_missed(self, result: dict[str, Any]) -> None:
        if result["type"] == "replay":
            for uri in result["missing"]:
                self.mirrors.pop(uri, None)
            for envelope in result["actions"]:
                self._take_envelope(envelope)
        else:
            # The host's counter may be lower than before, after a crash of its database.
            self.last_seq = 0
            ahead = {uri: mirror.ahead for uri, mirror in self.mirrors.items()}
            self.mirrors.clear()
            self._take_snapshots(result["snapshots"])
            for uri, mirror in self.mirrors.items():
                mirror.ahead = ahead.get(uri, [])

    def _take_snapshots(self, snapshots: Sequence[Mapping[str, Any]]) -> None:
        for snapshot in snapshots:
            before = self.mirrors.get(snapshot["resource"])
            ahead = before.ahead if before is not None else []
            self.mirrors[snapshot["resource"]] = Mirror(snapshot["state"], snapshot["fromSeq"], self.version, ahead)
            self.last_seq = max(self.last_seq, snapshot["fromSeq"])

    def _take_envelope(self, envelope: Envelope) -> None:
        self.seen.append(envelope)
        if self._on_envelope is not None:
            self._on_envelope(envelope)
        self.last_seq = max(self.last_seq, envelope["serverSeq"])
        action = envelope["action"]
        uri = self.version.channel_of(envelope) or ""
        mirror = self.mirrors.get(uri)
        origin = envelope.get("origin")
        if mirror is None:
            return
        if origin is not None and origin["clientId"] == self.client_id:
            mirror.ahead = [each for each in mirror.ahead if each[0] != origin["clientSeq"]]
        if "rejectionReason" not in envelope:
            mirror.confirmed = self.version.reduce(mirror.confirmed, action, _now())
            mirror.from_seq = envelope["serverSeq"]


@asynccontextmanager
async def connected(url: str, key: str, client_id: str, *subscriptions: str, **options: Any) -> AsyncIterator[Client]:
    """A client after its handshake, subscribed to the root unless ``subscriptions`` are named."""
    client = Client(url, key, client_id, **options)
    await client.open()
    try:
        await client.initialize(*(subscriptions or (client.version.root,)))
        yield client
    finally:
        await client.close()


def _fail(answer: asyncio.Future[Any], error: BaseException | None) -> None:
    if error is not None and not answer.done():
        answer.set_exception(error)


def _now() -> int:
    return int(time.time() * 1000)
