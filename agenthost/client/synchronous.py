"""The client for programs without an event loop. Each method is that of the asynchronous client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from agenthost.client.agents import Agent
from agenthost.client.asynchronous import RETRY_SECONDS, AsyncClient, AsyncSession, Content, ImageSource, Tool
from agenthost.client.errors import Refused
from agenthost.client.events import Cancelled, Event, Mode, Permission, SessionInfo, ToolCall, TurnResult
from agenthost.client.portal import Portal
from agenthost.client.turns import AsyncTurn


class Client:
    """A server and a key. Tools and permissions that are no coroutines run in the calling thread. See AsyncClient."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        retry_seconds: float = RETRY_SECONDS,
        on_wait: Callable[[float, Refused], None] | None = None,
    ) -> None:
        portal = Portal()
        try:
            self._client = AsyncClient(url, key, retry_seconds=retry_seconds, on_wait=on_wait, invoke=portal.invoke)
        except BaseException:
            portal.close()
            raise
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._client).removeprefix("Async")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the client's thread."""
        if self._portal.is_open:
            self._portal.run(self._client.aclose())
            self._portal.close()

    def agents(self) -> list[Agent]:
        """The agents that the key may use, with their tools, options and capabilities."""
        return self._portal.run(self._client.agents())

    def create_session(
        self,
        agent: str,
        *,
        options: Mapping[str, str] | None = None,
        enable: Collection[str] = (),
        trust: Collection[str] = (),
        tools: Sequence[Tool] = (),
        permission: Permission | None = None,
        messages: Sequence[Mapping[str, Any]] = (),
        mode: Mode = "delta",
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> Session:
        """Create a session. See AsyncClient.create_session."""
        made = self._client.create_session(
            agent,
            options=options,
            enable=enable,
            trust=trust,
            tools=tools,
            permission=permission,
            messages=messages,
            mode=mode,
            idempotency_key=idempotency_key,
            traceparent=traceparent,
        )
        return Session(self._portal, self._portal.run(made))

    def session(
        self, session_id: str, *, tools: Sequence[Tool] = (), permission: Permission | None = None, mode: Mode = "delta"
    ) -> Session:
        """An existing session. ``tools`` replace those that it has, with its next message."""
        return Session(self._portal, self._client.session(session_id, tools=tools, permission=permission, mode=mode))

    def sessions(self) -> Iterator[SessionInfo]:
        """All sessions of the key, the newest first. Reads a page of the list at a time."""
        listed = self._client.sessions()

        async def following() -> SessionInfo | None:
            return await anext(listed, None)

        while (info := self._portal.run(following())) is not None:
            yield info

    def delete_session(self, session_id: str) -> None:
        """Delete a session for ever, and stop its turn."""
        self._portal.run(self._client.delete_session(session_id))


class Session:
    """A session of the server, and the tools and permissions that this client answers it with."""

    def __init__(self, portal: Portal, session: AsyncSession) -> None:
        self._portal, self._session = portal, session

    def __repr__(self) -> str:
        return repr(self._session).removeprefix("Async")

    @property
    def id(self) -> str:
        return self._session.id

    def info(self) -> SessionInfo:
        return self._portal.run(self._session.info())

    def send(
        self,
        content: Content,
        *,
        images: Sequence[ImageSource] = (),
        options: Mapping[str, str] | None = None,
        enable: Collection[str] | None = None,
        trust: Collection[str] | None = None,
        mode: Mode | None = None,
        deadline: int | None = None,
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> Turn:
        """Send a message. The request begins with the first event that is read. See AsyncSession.send."""
        return Turn(
            self._portal,
            self._session.send(
                content,
                images=images,
                options=options,
                enable=enable,
                trust=trust,
                mode=mode,
                deadline=deadline,
                idempotency_key=idempotency_key,
                traceparent=traceparent,
            ),
        )

    def answer(
        self, answers: Mapping[str, Any], *, mode: Mode | None = None, idempotency_key: str = "", traceparent: str = ""
    ) -> Turn:
        """Answer open calls. See AsyncSession.answer."""
        made = self._session.answer(answers, mode=mode, idempotency_key=idempotency_key, traceparent=traceparent)
        return Turn(self._portal, made)

    def join(self, *, after: str = "", mode: Mode | None = None, traceparent: str = "") -> Turn:
        """The running turn, from its start or after a position. It has no events if no turn runs."""
        return Turn(self._portal, self._session.join(after=after, mode=mode, traceparent=traceparent))

    def open_calls(self) -> list[ToolCall]:
        """The calls at the end of the history that wait for an answer."""
        return self._portal.run(self._session.open_calls())

    def cancel(self, reason: str = "") -> Cancelled:
        """Stop the running or waiting turn."""
        return self._portal.run(self._session.cancel(reason))

    def history(self, kind: str = "full") -> list[dict[str, Any]]:
        """The messages: ``full``, or ``compacted`` as the model would get them."""
        return self._portal.run(self._session.history(kind))

    def delete(self) -> None:
        """Delete the session for ever, and stop its turn."""
        self._portal.run(self._session.delete())


class Turn:
    """A turn's events, to iterate over. The turn continues at the server if the iteration is given up."""

    def __init__(self, portal: Portal, turn: AsyncTurn) -> None:
        self._portal, self._turn = portal, turn

    @property
    def id(self) -> str:
        """``X-Turn-Id``: the same after each permission and result. Empty for a turn that was joined."""
        return self._turn.id

    @property
    def position(self) -> str:
        """The position of the last event. ``session.join(after=position)`` continues there, in any process."""
        return self._turn.position

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._turn.text

    @property
    def stop_reason(self) -> str:
        """Empty until the turn has ended."""
        return self._turn.stop_reason

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return self._turn.open_calls

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._portal.run(self._following())
        if event is None:
            raise StopIteration
        return event

    async def _following(self) -> Event | None:
        # StopAsyncIteration cannot be the outcome of a coroutine.
        return await anext(self._turn, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading. The turn continues; ``session.cancel()`` stops it."""
        self._portal.run(self._turn.aclose())

    def result(self) -> TurnResult:
        """Read the rest of the events and return the answer."""
        return self._portal.run(self._turn.result())
