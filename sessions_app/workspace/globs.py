"""Glob patterns for paths: `*`, `?` and `[a-z]` within a name, `**` for any directories, `{a,b}` for alternatives."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

from sessions_app.workspace.errors import BadPattern
from sessions_app.workspace.paths import Path

MOST_CHARACTERS = 1000
_MOST_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[Path], bool]:
    """A test of paths. A pattern without a slash matches names at any depth. The time for a path has a small bound."""
    if not pattern or len(pattern) > MOST_CHARACTERS:
        raise BadPattern(f"a glob pattern has 1 to {MOST_CHARACTERS:,} characters; this one has {len(pattern):,}")
    patterns = [_names(one) for one in alternatives(pattern)]
    return lambda path: any(_matches(names, path) for names in patterns)


def alternatives(pattern: str) -> list[str]:
    """The patterns without braces that this one stands for."""
    found, done = [pattern], []
    while found:
        one = found.pop()
        match = _BRACES.search(one)
        if match is None:
            done.append(one)
        else:
            found += [one[: match.start()] + choice + one[match.end() :] for choice in reversed(match[1].split(","))]
        if len(found) + len(done) > _MOST_ALTERNATIVES:
            raise BadPattern(f"the glob pattern has more than {_MOST_ALTERNATIVES} alternatives")
    return done


def _names(pattern: str) -> list[re.Pattern[str] | None]:
    """One expression for each name; None for `**`. `fnmatch` makes expressions that do not go back over what they matched."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern.strip("/") and not pattern.startswith("/"):
        names.insert(0, "**")
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _matches(pattern: list[re.Pattern[str] | None], path: Path) -> bool:
    # The positions in the path that the pattern can have reached.
    reached = {0}
    for one in pattern:
        if one is None:
            reached = set(range(min(reached), len(path) + 1))
        else:
            reached = {position + 1 for position in reached if position < len(path) and one.match(path[position])}
        if not reached:
            return False
    return len(path) in reached
