"""Watches of directory trees, by the kernel's notifications: what changes below a path of a tree, confined to the tree.

A directory is opened relative to descriptors, as for every operation on files, and the kernel is asked about the descriptor. No
link below a watch's root is followed. The directories above the root are watched too, for the name that leads to it: so a root
that is deleted and made again, or is not there yet, is found.

``Watcher.read`` is called when notices wait, and does no work on the disk. ``Watcher.work`` does, in a thread.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sessions_app.workspace import inotify
from sessions_app.workspace.changes import Changes, Kind, Names
from sessions_app.workspace.errors import FileError, Missing, NotADirectory, TooMany
from sessions_app.workspace.inotify import Exhausted, Inotify, Notice
from sessions_app.workspace.paths import MOST_NAMES, Path
from sessions_app.workspace.places import Descriptors, Place
from sessions_app.workspace.resolving import DIRECTORY
from sessions_app.workspace.tree import Tree

MOST_KNOWN_NAMES = 10_000
"""Names of a directory that are kept, to tell a new file from one that replaces another. With more, each counts as new."""
_MOST_KNOWN_OF_TENANT = 300_000
_MOST_SCANNED = 200_000
_FORGOTTEN_AT_ONCE = 100
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A directory that a program has removed, replaced or closed since it was found.
_LEFT_OUT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM)

Matcher = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class _Above:
    """A directory above the root. ``name``: leads to the root; ``last``: it is the root's own name."""

    name: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class _Inside:
    """The root or a directory below it."""

    path: Names


class Watch:
    """What is watched. ``includes``, ``excludes``: tests of paths from the root; an excluded directory is not entered.

    ``is_stale``: the directories have to be found again. ``is_incomplete``: some could not be watched.
    """

    def __init__(
        self, tree: Tree, path: Path, *, recursive: bool, includes: Sequence[Matcher], excludes: Sequence[Matcher], most: int
    ) -> None:
        self.tree, self.path, self.recursive = tree, path, recursive
        self.most = most
        self.changes = Changes()
        self.is_stale = True
        self.is_incomplete = False
        self.has_ended = False
        self._includes, self._excludes = includes, excludes
        self._real: list[bytes] = []
        self._root: tuple[int, bool] | None = None
        """The inode of the root, and whether it is a directory; None if there is none."""
        self._began = False
        self._branches: dict[Names, None] = {}
        """New directories that are not watched yet."""
        self._numbers: dict[Names, int] = {}
        self._above: set[int] = set()
        self._below: dict[Names, set[bytes]] = {}

    @property
    def needs_work(self) -> bool:
        return self.is_stale or bool(self._branches)

    def excluded(self, path: Path) -> bool:
        return any(matches(path[:end]) for matches in self._excludes for end in range(1, len(path) + 1))

    def included(self, path: Path) -> bool:
        if not self._includes or not path:
            return True
        return any(matches(path[:end]) for matches in self._includes for end in range(1, len(path) + 1))

    def batch(self, hides: Callable[[Path], bool]) -> list[tuple[Path, Kind]]:
        """The changes to report, of paths from the root; nothing waits afterwards. Of the root: anything may have changed.

        ``hides``: of paths in the tree, those that are not shown. Names that are not valid UTF-8 cannot be in a URI.
        """
        changes, lost = self.changes.take()
        if lost:
            return [((), "updated")]
        real = tuple(os.fsdecode(name) for name in self._real)
        shown: list[tuple[Path, Kind]] = []
        for names, kind in changes.items():
            try:
                path = tuple(name.decode() for name in names)
            except UnicodeDecodeError:
                continue
            if not self.included(path) or self.excluded(path) or hides(real + path):
                continue
            shown.append((path, kind))
        return shown


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory that the kernel reports. ``names``: None while they are unknown; ``news``: what came and went meanwhile."""

    number: int
    uses: dict[Watch, _Above | _Inside] = field(default_factory=dict)
    names: set[bytes] | None = None
    news: dict[bytes, bool] = field(default_factory=dict)
    known: int = 0

    def note(self, name: bytes, *, present: bool) -> bool:
        """Whether there was an entry of this name before."""
        if self.names is None:
            existed = self.news.get(name, False)
            if len(self.news) < MOST_KNOWN_NAMES:
                self.news[name] = present
            return existed
        existed = name in self.names
        if not present:
            self.names.discard(name)
        elif len(self.names) < MOST_KNOWN_NAMES:
            self.names.add(name)
        return existed

    def found(self, names: Collection[bytes]) -> None:
        """The names that are there now, as far as nothing newer is known."""
        present = {name for name, is_there in self.news.items() if is_there}
        self.names = {name for name in names if self.news.get(name, True)} | present
        self.known = len(self.names)
        self.news = {}


class Watcher:
    """The watches of one tenant in one process, with one queue of the kernel. ``most``: directories of all watches together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inotify = Inotify()
        self._lock = threading.Lock()
        self._directories: dict[int, _Directory] = {}
        self._watches: dict[Watch, None] = {}
        self._is_closed = False
        self._known = 0
        """Names of all directories, as they were found."""

    @property
    def descriptor(self) -> int:
        """Readable when notices wait."""
        return self._inotify.descriptor

    def close(self) -> None:
        with self._lock:
            for watch in self._watches:
                watch.has_ended = True
            self._is_closed = True
            self._inotify.close()

    # --- beginning and ending; in a thread ---

    def begin(self, watch: Watch) -> None:
        """Raises ``TooMany`` if there are more directories than the limit, ``Exhausted``, or an error of the root's path."""
        with self._lock:
            if watch.has_ended:
                return
            self._watches[watch] = None
        try:
            self._attach(watch)
            if watch.is_incomplete:
                raise TooMany("more directories than one watch, or all watches of the tenant, may have")
        except BaseException:
            self.end(watch)
            raise

    def end(self, watch: Watch) -> None:
        with self._lock:
            watch.has_ended = True
            self._watches.pop(watch, None)
        self._forget(watch)

    def work(self, watch: Watch) -> None:
        """Find the directories of a stale watch, or its new ones. One call for a watch at a time."""
        if watch.is_stale:
            try:
                self._attach(watch)
            except FileError:
                # There is nothing at the root.
                pass
            except Exhausted:
                watch.is_incomplete = True
            except BaseException:
                watch.is_stale = True
                raise
            return
        with self._lock:
            branches, watch._branches = watch._branches, {}
        with suppress(FileError), watch.tree.open() as at:
            for path in branches:
                try:
                    self._attach_branch(at, watch, path)
                except Exhausted:
                    watch.is_incomplete = True

    # --- notices; on the loop ---

    def read(self) -> bool:
        """Take some of the notices that wait; whether there may be more."""
        with self._lock:
            if self._is_closed:
                return False
            notices, more = self._inotify.read()
            for notice in notices:
                self._take(notice)
        return more

    def _take(self, notice: Notice) -> None:
        mask = notice.mask
        if mask & inotify.OVERFLOW:
            for watch in self._watches:
                watch.changes.lose()
                watch.is_stale = True
            return
        directory = self._directories.get(notice.directory)
        if directory is None:
            return
        if mask & (inotify.IGNORED | inotify.SELF):
            for watch, use in directory.uses.items():
                if isinstance(use, _Above) or not use.path:
                    watch.is_stale = True
            if mask & inotify.IGNORED:
                self._drop(directory)
            return
        if not notice.name:
            return
        gone = bool(mask & inotify.GONE)
        existed = directory.note(notice.name, present=not gone)
        kind: Kind = "deleted" if gone else "added" if mask & inotify.CAME and not existed else "updated"
        for watch, use in list(directory.uses.items()):
            if isinstance(use, _Inside):
                self._take_inside(watch, (*use.path, notice.name), kind, mask)
            elif use.name == notice.name:
                self._take_above(watch, use, kind, mask)

    def _take_inside(self, watch: Watch, path: Names, kind: Kind, mask: int) -> None:
        if mask & inotify.IS_DIRECTORY and watch.recursive:
            self._forget_branch(watch, path)
            if kind != "deleted":
                watch._branches[path] = None
        watch.changes.add(path, kind)

    def _take_above(self, watch: Watch, use: _Above, kind: Kind, mask: int) -> None:
        is_file = use.last and not mask & inotify.IS_DIRECTORY and (watch._root is None or not watch._root[1])
        if not is_file:
            watch.is_stale = watch.is_stale or bool(mask & (inotify.GONE | inotify.CAME))
            return
        if mask & inotify.GONE:
            watch._root = None
        elif watch._root is None:
            watch._root = 0, False
            kind = "added"
        watch.changes.add((), kind)

    # --- directories; under the lock ---

    def _forget(self, watch: Watch) -> None:
        """Takes the lock itself, for some directories at a time: the loop may wait for it."""
        left = True
        while left:
            with self._lock:
                for _ in range(_FORGOTTEN_AT_ONCE):
                    if watch._numbers:
                        self._unuse(watch._numbers.popitem()[1], watch)
                    elif watch._above:
                        self._unuse(watch._above.pop(), watch)
                    else:
                        watch._below.clear()
                        watch._branches.clear()
                        left = False
                        break

    def _forget_branch(self, watch: Watch, path: Names) -> None:
        """A directory and all below it, which have another path now, or none."""
        paths = [path]
        while paths:
            one = paths.pop()
            watch._branches.pop(one, None)
            if (number := watch._numbers.pop(one, None)) is not None:
                self._unuse(number, watch)
            paths += [(*one, name) for name in watch._below.pop(one, ())]
        if path[:-1] in watch._below:
            watch._below[path[:-1]].discard(path[-1])

    def _unuse(self, number: int, watch: Watch) -> None:
        directory = self._directories.get(number)
        if directory is None:
            return
        directory.uses.pop(watch, None)
        if not directory.uses:
            del self._directories[number]
            self._known -= directory.known
            if not self._is_closed:
                self._inotify.remove(number)

    def _drop(self, directory: _Directory) -> None:
        """The kernel does not report the directory any more."""
        del self._directories[directory.number]
        self._known -= directory.known
        for watch, use in directory.uses.items():
            if isinstance(use, _Above):
                watch._above.discard(directory.number)
            elif watch._numbers.get(use.path) == directory.number:
                del watch._numbers[use.path]

    # --- finding directories; in a thread ---

    def _use(self, watch: Watch, descriptor: int, use: _Above | _Inside) -> _Directory | None:
        """Let the kernel report this directory to the watch; None if it cannot be."""
        with self._lock:
            if watch.has_ended:
                return None
            if len(watch._numbers) >= watch.most or len(self._directories) >= self._most:
                watch.is_incomplete = True
                return None
            try:
                number = self._inotify.add(descriptor)
            except OSError as error:
                if error.errno in _LEFT_OUT:
                    return None
                raise
            directory = self._directories.setdefault(number, _Directory(number))
            directory.uses[watch] = use
            if isinstance(use, _Above):
                watch._above.add(number)
            else:
                watch._numbers[use.path] = number
                if use.path:
                    watch._below.setdefault(use.path[:-1], set()).add(use.path[-1])
            return directory

    def _attach(self, watch: Watch) -> None:
        self._forget(watch)
        watch.is_stale = watch.is_incomplete = False
        before, began = watch._root, watch._began
        watch._root = None
        try:
            with watch.tree.open() as at:
                self._attach_root(at, watch)
        except (Missing, NotADirectory):
            if not began:
                raise
        finally:
            if began and not watch.has_ended:
                self._compare(watch, before)
        watch._began = True

    def _compare(self, watch: Watch, before: tuple[int, bool] | None) -> None:
        with self._lock:
            if watch._root is not None and before is not None:
                watch.changes.lose()
            elif watch._root is not None or before is not None:
                watch.changes.take()
                watch.changes.add((), "deleted" if watch._root is None else "added")

    def _attach_root(self, at: Descriptors, watch: Watch) -> None:
        watch._real = _real_names(at, watch.path)
        device = os.fstat(at.root).st_dev
        descriptor = os.dup(at.root)
        try:
            for index, name in enumerate(watch._real):
                last = index == len(watch._real) - 1
                self._scan(self._use(watch, descriptor, _Above(name, last)), descriptor)
                inner = _opened(descriptor, name, device)
                if inner is None:
                    status = Place(descriptor, name).status_if_any() if last else None
                    if status is not None:
                        at.check(Place(descriptor, name))
                        watch._root = status.st_ino, False
                    return
                os.close(descriptor)
                descriptor = inner
            at.check(Place(descriptor, b"."))
            watch._root = os.fstat(descriptor).st_ino, True
            self._attach_below(watch, descriptor, (), device, new=False)
        finally:
            os.close(descriptor)

    def _attach_branch(self, at: Descriptors, watch: Watch, path: Names) -> None:
        device = os.fstat(at.root).st_dev
        descriptor: int | None = os.dup(at.root)
        for name in (*watch._real, *path):
            assert descriptor is not None
            inner = _opened(descriptor, name, device)
            os.close(descriptor)
            descriptor = inner
            if descriptor is None:
                return
        assert descriptor is not None
        try:
            self._attach_below(watch, descriptor, path, device, new=True)
        finally:
            os.close(descriptor)

    def _attach_below(self, watch: Watch, directory: int, path: Names, device: int, *, new: bool) -> None:
        """Watch a directory, and those below it. ``new``: what is in it was added since."""
        stack = [(os.dup(directory), path)]
        try:
            while stack:
                descriptor, path = stack.pop()
                try:
                    for name, is_directory in self._scan(self._use(watch, descriptor, _Inside(path)), descriptor):
                        inside = (*path, name)
                        if new:
                            with self._lock:
                                watch.changes.add(inside, "added")
                        if not is_directory or not watch.recursive or len(watch._real) + len(inside) > MOST_NAMES:
                            continue
                        if _is_excluded(watch, inside):
                            continue
                        if (inner := _opened(descriptor, name, device)) is not None:
                            stack.append((inner, inside))
                finally:
                    os.close(descriptor)
                if watch.has_ended or watch.is_incomplete:
                    return
        finally:
            for descriptor, _ in stack:
                os.close(descriptor)

    def _scan(self, directory: _Directory | None, descriptor: int) -> list[tuple[bytes, bool]]:
        """The entries of a directory that is reported from now on: each name, and whether it is a directory's."""
        if directory is None:
            return []
        found = list(_entries(descriptor))
        with self._lock:
            if directory.names is None and len(found) < min(MOST_KNOWN_NAMES, _MOST_KNOWN_OF_TENANT - self._known):
                directory.found([name for name, _ in found])
                self._known += directory.known
        return found


def _entries(descriptor: int) -> Iterator[tuple[bytes, bool]]:
    try:
        readable = os.open(b".", _READ, dir_fd=descriptor)
    except OSError:
        return
    try:
        with os.scandir(readable) as entries:
            for entry, _ in zip(entries, range(_MOST_SCANNED), strict=False):
                yield os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)
    finally:
        os.close(readable)


def _opened(parent: int, name: bytes, device: int) -> int | None:
    """A directory's descriptor; None if there is no directory of this name on the same file system."""
    try:
        descriptor = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in _LEFT_OUT:
            return None
        raise
    if os.fstat(descriptor).st_dev != device:
        os.close(descriptor)
        return None
    return descriptor


def _is_excluded(watch: Watch, path: Names) -> bool:
    try:
        return watch.excluded(tuple(name.decode() for name in path))
    except UnicodeDecodeError:
        # What is below it cannot be reported.
        return True


def _real_names(at: Descriptors, path: Path) -> list[bytes]:
    """The names of the path's real place; of a path that leads nowhere, the names as they are. Raises ``Outside``."""
    try:
        with at.place(path, follow=True) as place:
            return [os.fsencode(name) for name in at.real_path(place)]
    except (Missing, NotADirectory):
        return [name.encode() for name in path]
