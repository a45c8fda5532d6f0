"""A session's files for the tools of its agent (``agents_app.tools.files``).

The tools are the session's own, so what they may use is decided by the session's workspace alone: the rights of a key were
checked when the turn began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from agents_app.access_rules import Operation, Policy
from agents_app.tools.files.host import Fault, FileProblem, Files, Found, Info, Kind, Match, Named, Path
from agents_app.tools.files.listing import NOT_ENTERED
from agents_app.tools.files.uses import permitted_path
from sessions_app.core.base.errors import FilesAway, NotReady, PathOutside, SessionNotFound, WorkspaceFull, WorkspacesOff
from sessions_app.core.workspaces import access, directories, places, templates, threads, trees
from sessions_app.core.workspaces.access import GrantMissing, Guard
from sessions_app.core.workspaces.places import Place
from sessions_app.core.workspaces.room import QuotaReached, Room
from sessions_app.models import Session
from sessions_app.workspace import errors as mechanism
from sessions_app.workspace import paths
from sessions_app.workspace.entries import Entry
from sessions_app.workspace.search import Limits, Reached, find_lines, find_lines_of_file, find_names

T = TypeVar("T")


class SessionFiles:
    """The workspace of one session, for one run (``agents_app.tools.files.host.Workspace``). Found anew for each call."""

    def __init__(self, session: Session, policy: Policy | None = None) -> None:
        self._session, self._policy = session, policy
        self._changing = asyncio.Lock()

    async def run(self, work: Callable[[Files], T]) -> T:
        try:
            return await threads.run(self._session.tenant_id, partial(self._work, work, permitted_path.get()))
        except FilesAway:
            raise FileProblem("unavailable") from None

    async def look(self, work: Callable[[Files], T]) -> T:
        try:
            return await threads.run(self._session.tenant_id, partial(self._look, work))
        except FilesAway:
            raise FileProblem("unavailable") from None

    async def change(self, work: Callable[[Files], T]) -> T:
        async with self._changing:
            return await self.run(work)

    def _work(self, work: Callable[[Files], T], permitted: Path | None) -> T:
        with _problems():
            place = directories.of_session(self._session)
        return work(_Files(place, self._policy, permitted))

    def _look(self, work: Callable[[Files], T]) -> T:
        with _problems():
            place = directories.if_made(self._session)
        if place is not None:
            return work(_Files(place, self._policy, None))
        agent = Session.objects.filter(pk=self._session.pk).values_list("agent_name", flat=True).first()
        if agent is None or templates.of_agent(agent) is not None:
            raise FileProblem("unavailable")
        place = Place(self._session.tenant_id, None, "", (places.SESSIONS, self._session.public_id), ())
        return work(_NoFiles(place, self._policy))


class _Files:
    """``agents_app.tools.files.host.Files`` in one workspace. ``permitted``: the path that a client let the call use."""

    def __init__(self, place: Place, policy: Policy | None, permitted: Path | None) -> None:
        self._place, self._policy, self._permitted = place, policy, permitted
        self._tree = trees.tree_of(place, guard=self._guard("read"))
        self.cwd: Path = place.root + place.path

    def stat(self, path: Path) -> Info:
        with _problems():
            return _info(self._tree.stat(self._inside(path), follow=True))

    def read(self, path: Path, offset: int, length: int) -> bytes:
        with _problems():
            return self._tree.read(self._inside(path), offset=offset, length=length, most=length)

    def write(self, path: Path, data: bytes) -> None:
        with _problems():
            inside, guard = self._inside(path), self._guard("read", "write")
            access.require(guard, inside)
            with Room(self._place) as room:
                tree = trees.tree_of(self._place, room, make=True, guard=guard)
                if inside[:-1]:
                    tree.make_directory(inside[:-1], parents=True)
                tree.write(inside, data)

    def list(self, path: Path, most: int) -> Sequence[Info]:
        with _problems():
            return [_info(entry) for entry in self._tree.list(self._inside(path), most=most)]

    def find(self, path: Path, pattern: str, most: int) -> Named:
        with _problems():
            limits = Limits(matches=most)
            found = find_names(self._tree, pattern, path=self._inside(path), skip=NOT_ENTERED, limits=limits)
        return Named([(self._place.root + names, entry.kind) for names, entry in found.entries], _stopped(found.reached, limits))

    def search(self, path: Path, expression: str, pattern: str, most: int) -> Found:
        with _problems():
            inside, limits = self._inside(path), Limits(matches=most)
            if self._tree.stat(inside, follow=True).kind == "file":
                found = find_lines_of_file(self._tree, expression, inside, limits=limits)
            else:
                found = find_lines(self._tree, expression, path=inside, glob=pattern or None, skip=NOT_ENTERED, limits=limits)
        root = self._place.root
        stopped = _stopped(found.reached, limits)
        if found.refused:
            left_out = f"{found.refused:,} files were left out: the user has to be asked; give the path of one"
            stopped = f"{stopped}; {left_out}" if stopped else left_out
        matches = [Match(root + each.path, each.number, each.text) for each in found.lines]
        return Found(matches, stopped)

    def _inside(self, path: Path) -> Path:
        """The path in the tree. Links on the way cannot lead out of it: the tree refuses those."""
        root = self._place.root
        if path[: len(root)] != root:
            raise FileProblem("outside")
        paths.check(path)
        inside = path[len(root) :]
        access.require(self._guard("read"), inside)
        return inside

    def _guard(self, *operations: Operation) -> Guard | None:
        if self._policy is None:
            return None
        granted = partial(self._granted, "write" in operations)
        return Guard([self._policy], operations, self._place.root, granted)

    def _granted(self, writes: bool, operation: Operation, path: Path) -> bool:
        """A client permitted: this path, what is below a directory that needed a permission, directories above a new file."""
        permitted = self._permitted
        if permitted is None or self._policy is None:
            return False
        if path == permitted or (writes and permitted[: len(path)] == path):
            return True
        return path[: len(permitted)] == permitted and self._policy.decide(operation, permitted) == "ask"


def _real(refused: mechanism.Refused) -> str:
    """Where the path leads, for a model that came through a link; only what clients can be asked for is named."""
    return f"it is {refused.uri}" if isinstance(refused, GrantMissing) else ""


class _NoFiles(_Files):
    """The files of a workspace that is not made yet."""

    def __init__(self, place: Place, policy: Policy | None) -> None:
        self._place, self._policy, self._permitted = place, policy, None
        self.cwd = place.root

    def stat(self, path: Path) -> Info:
        if not self._inside(path):
            return Info("", "directory")
        raise FileProblem("missing")

    def read(self, path: Path, offset: int, length: int) -> bytes:  # noqa: ARG002 - the interface's
        raise FileProblem("missing")


def _info(entry: Entry) -> Info:
    kind: Kind = entry.kind
    return Info(entry.name, kind, entry.size, entry.modified)


def _stopped(reached: Reached, limits: Limits) -> str:
    texts: Mapping[Reached, str] = {
        "": "",
        "files": f"more than {limits.files:,} files; give a subdirectory",
        "bytes": f"more than {limits.bytes // 1024**2:,} MiB to search; give a subdirectory or a glob pattern",
        "matches": f"there are more than these {limits.matches:,}; give a more specific pattern",
        "seconds": f"it took longer than {limits.seconds:g} s; give a subdirectory or a simpler pattern",
    }
    return texts[reached]


_FAULTS: Mapping[type[mechanism.FileError], Fault] = {
    mechanism.BadUri: "bad_path",
    mechanism.Outside: "outside",
    mechanism.Missing: "missing",
    mechanism.NotADirectory: "not_directory",
    mechanism.IsADirectory: "is_directory",
    mechanism.Exists: "exists",
    mechanism.TooLarge: "too_large",
    mechanism.TooMany: "too_many",
    mechanism.TooSlow: "too_slow",
    mechanism.NotPermitted: "not_permitted",
    mechanism.Unsupported: "special",
    mechanism.BadPattern: "bad_pattern",
}
_WITH_DETAIL = (mechanism.BadUri, mechanism.BadPattern)


@contextmanager
def _problems() -> Iterator[None]:
    """Raises the tools' errors for the mechanism's and the core's."""
    try:
        yield
    except QuotaReached as error:
        raise FileProblem("no_room", str(error.refusal)) from None
    except WorkspaceFull as error:
        raise FileProblem("no_room", str(error)) from None
    except mechanism.NoRoom:
        raise FileProblem("no_room", "the server's disk is full") from None
    except mechanism.Refused as refused:
        raise FileProblem("refused" if refused.path is None else "needs_permission", _real(refused)) from None
    except mechanism.FileError as error:
        fault: Fault = _FAULTS.get(type(error), "unavailable")
        raise FileProblem(fault, str(error) if isinstance(error, _WITH_DETAIL) else "") from None
    except (PathOutside, SessionNotFound, WorkspacesOff, NotReady):
        # The workspace or the session was removed, or the volume is away.
        raise FileProblem("unavailable") from None
