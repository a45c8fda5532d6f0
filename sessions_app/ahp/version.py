"""What a version of AHP is: one value with everything that differs between versions.

The transport and a tenant's switchboard serve any ``Version``; a connection has one. ``versions/`` has the versions and their
table. The protocols below are implemented by modules of a version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection
    from sessions_app.ahp.transport.jsonrpc import Request, RPCError
    from sessions_app.core.base.caller import Caller, Sight
    from sessions_app.core.base.errors import DomainError
    from sessions_app.core.base.shapes import Shape
    from sessions_app.core.log.journal.types import Event
    from sessions_app.core.sessions.entries import SessionEntry
    from sessions_app.models import Session, Terminal


@dataclass(frozen=True, slots=True)
class Channel:
    """A URI with a state behind it, to which connections subscribe.

    ``key``: the journal's key for its events (core.base.journal_keys). Several channels may have the same key. ``kind``: the
    version's own name for what it is. ``agent``: the session's; "" for the root and terminals. ``session``: its session's URI in
    states and actions, in versions where that may differ from the channel's. ``watch``: of files, the id of that watch.
    """

    key: int
    uri: str
    kind: str
    agent: str = field(default="", compare=False)
    session: str = ""
    watch: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """A channel that exists for a caller. ``session`` and ``terminal``: both None for the root."""

    channel: Channel
    session: Session | None = field(default=None, repr=False)
    terminal: Terminal | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A channel's state at a position of the tenant's journal. ``text``: JSON, as the version sends it."""

    seq: int
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PositionedResult:
    """A command's result that contains states: it is sent between the actions before and after these positions.

    ``positions``: for each channel, the number up to which the result includes its events. ``followed``: the channels to which
    the connection was subscribed before.
    """

    text: str = field(repr=False)
    """JSON text: states are large, so the thread that reads them encodes them."""
    positions: Mapping[Channel, int]
    followed: frozenset[Channel] = frozenset()


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A command's result as JSON text: it is large, so a thread has encoded it."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Command:
    """A request that clients may send. ``answer`` gets checked params and returns the result.

    ``with_states``: the result is a ``PositionedResult``; actions are delayed while it is made. ``is_handshake``: comes first
    on a connection, and only there. ``anytime``: allowed before the handshake too. ``params_optional``: may be sent without
    params. ``needs_write``: needs the scope ``sessions:write`` (R9). ``is_served``: whether this installation has what the
    command is about; without it the method does not exist.
    """

    params: Shape[Any]
    answer: Callable[[Connection, Any], Awaitable[Any]]
    with_states: bool = False
    is_handshake: bool = False
    anytime: bool = False
    params_optional: bool = False
    needs_write: bool = False
    is_served: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class ClientNotification:
    """A notification that clients may send. ``limited``: counts against the dispatches per second of a connection."""

    params: Shape[Any]
    take: Callable[[Connection, Any], Awaitable[None]]
    limited: bool = False


class Snapshots(Protocol):
    """Finds channels and reads their states. Synchronous: runs in a thread."""

    def find_all(self, caller: Caller, uris: Sequence[str], /) -> tuple[list[Resource], list[str]]:
        """The resources with these URIs, each once and in order, and the URIs that do not exist."""

    def read(self, caller: Caller, resource: Resource, /) -> Snapshot:
        """SessionNotFound or TerminalNotFound if it was deleted meanwhile."""


class Projection(Protocol):
    """Encodes events as envelopes: the params of an ``action`` notification, as JSON text. Pure."""

    def envelopes(self, event: Event, channels: Collection[Channel], /) -> Iterable[tuple[Channel, str]]:
        """An event of a session or terminal, for those of these channels that it changes: at most one envelope for each."""

    def breaks(self, event: Event, /) -> bool:
        """Whether an event of a session changes its state in a way that no action of this version expresses.

        Connections that watch the session are closed, and get snapshots when they come back.
        """

    def root_envelope(self, event: Event, sight: Sight, sessions: int | None, /) -> str | None:
        """An event of the tenant, for subscribers of the root; None if it does not change the root.

        ``sessions``: for a limited caller, the number of sessions that it sees, if that has changed.
        """

    def rejection(self, event: Event, /) -> str | None:
        """The refusal of a dispatched action, for the client that sent it; None if it was sent in another version."""

    def echo(self, event: Event, /) -> str | None:
        """An accepted action, for the connection that sent it and is not subscribed; None if the version has no such echoes."""


class SummaryNotifications(Protocol):
    """Encodes changes to the list of sessions as whole frames, which are not numbered and never replayed."""

    def concerns(self, connection: Connection, /) -> bool:
        """Whether this connection gets notifications."""

    def added(self, summary: SessionEntry, /) -> str | None: ...

    def changed(self, before: SessionEntry | None, after: SessionEntry, fields: Collection[str], /) -> str | None:
        """``fields``: of the summary, those that may have changed. ``before``: None if it is not known."""

    def removed(self, event: Event, /) -> str | None:
        """From the event ``session_deleted``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Version:
    """``name``: for logs. ``listed``: sent to clients that offer no version of this host.

    ``choose``: of the versions that a client offers, the one to answer; None if this is none of them. ``fits``: whether it is for
    the client that sent this handshake, if it chooses a version. ``recognises``: whether a handshake that offers no versions (a
    ``reconnect``) of an unknown client is of this version. ``continues_as``: the name of the version with which a client of this
    one comes back; None: the same. ``errors``: how domain errors are answered. ``subject``: the value in a request's params that
    its error is about, for the message; None if that is unclear.
    """

    name: str
    listed: tuple[str, ...]
    choose: Callable[[Sequence[str]], str | None]
    fits: Callable[[Request], bool] = lambda _request: True
    recognises: Callable[[Request], bool] = lambda _request: False
    continues_as: Callable[[Request], str] | None = None
    commands: Mapping[str, Command]
    client_notifications: Mapping[str, ClientNotification]
    errors: Mapping[type[DomainError], Callable[[Any], RPCError]]
    subject: Callable[[int, Mapping[str, Any]], str | None] = lambda _code, _params: None
    snapshots: Snapshots
    projection: Projection
    summary_notifications: SummaryNotifications

    def __repr__(self) -> str:
        return f"Version({self.name})"


class Versions:
    """The versions that a host serves, in order of preference.

    A client's ``reconnect`` names no version: it continues with the one of its last handshake, which is stored.
    ``default``: for requests before a handshake, and for handshakes that fit no version.
    """

    def __init__(self, *preferred: Version, default: Version) -> None:
        assert default in preferred
        self.all = preferred
        self.default = default

    @property
    def listed(self) -> tuple[str, ...]:
        return tuple(name for version in self.all for name in version.listed)

    def of_handshake(self, request: Request) -> Version:
        """The first version of the table that the client offers; the client's own order does not count."""
        offered = _offered(request.params)
        for version in self.all:
            if (version.choose(offered) is not None and version.fits(request)) or version.recognises(request):
                return version
        return self.default

    def of_returning(self, remembered: Version | None, request: Request) -> Version | None:
        """The version of a client whose last handshake chose ``remembered``."""
        if remembered is None or remembered.continues_as is None:
            return remembered
        return self.named(remembered.continues_as(request)) or remembered

    def named(self, name: str | None) -> Version | None:
        return next((version for version in self.all if version.name == name), None)


def returning_client(request: Request) -> str:
    """The client that continues an earlier connection, whose version counts; "" for other requests."""
    params = request.params
    if request.method != "reconnect" or not isinstance(params, dict) or not isinstance(params.get("clientId"), str):
        return ""
    return str(params["clientId"])


def _offered(params: Any) -> list[str]:
    offered = params.get("protocolVersions") if isinstance(params, dict) else None
    return [each for each in offered if isinstance(each, str)] if isinstance(offered, list) else []
