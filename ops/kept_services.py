"""A Postgres and a Redis that `ops/test --fast` keeps running between runs.

A background process owns both servers. It ends after four hours without a run, on `ops/test --stop`, or when its state file is
removed. The state file holds the addresses with their passwords and is readable by its owner only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ops import services

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / "var" / "test-services.json"
IDLE_SECONDS = 4 * 3600
START_SECONDS = 90.0


def obtain(state: Path = STATE) -> tuple[str, str]:
    """The addresses of the Postgres and the Redis, which are started unless they run."""
    found = running(state)
    if found is None:
        _start(state)
        until = time.monotonic() + START_SECONDS
        while (found := running(state)) is None:
            if time.monotonic() > until:
                raise services.ServiceMissingError(f"the servers for --fast did not start; see {_log(state)}")
            time.sleep(0.05)
    state.touch()
    return found["database_url"], found["redis_url"]


def stop(state: Path = STATE) -> bool:
    """Stop both servers; False if they do not run."""
    found = running(state)
    if found is None:
        state.unlink(missing_ok=True)
        return False
    os.kill(int(found["pid"]), signal.SIGTERM)
    until = time.monotonic() + START_SECONDS
    while running(state) is not None and time.monotonic() < until:
        time.sleep(0.05)
    return True


def running(state: Path = STATE) -> dict[str, str] | None:
    """What the state file says, if the process that wrote it is alive."""
    try:
        found: dict[str, str] = json.loads(state.read_text())
        os.kill(int(found["pid"]), 0)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return found


def _log(state: Path) -> Path:
    return state.with_suffix(".log")


def _start(state: Path) -> None:
    state.parent.mkdir(exist_ok=True)
    state.unlink(missing_ok=True)
    with _log(state).open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "ops.kept_services", str(state)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=True,
        )


def main(state: Path) -> int:
    """The background process, which leaves its starter at once."""
    if os.fork():
        return 0
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: ended.set())
    own = str(os.getpid())
    with services.folder() as home:
        postgres, redis = services.Postgres(home), services.Redis(home)
        try:
            postgres.start()
            redis.start()
            written = state.with_suffix(".new")
            written.touch(mode=0o600)
            written.write_text(json.dumps({"pid": own, "database_url": postgres.url(), "redis_url": redis.url()}))
            written.replace(state)
            while _wanted(state, own) and not ended.wait(1.0):
                pass
        except services.ServiceMissingError as error:
            print(f"ops/test: {error}.", file=sys.stderr)
            return 1
        finally:
            redis.stop()
            postgres.stop()
            if (running(state) or {}).get("pid") == own:
                state.unlink(missing_ok=True)
    return 0


def _wanted(state: Path, own: str) -> bool:
    try:
        return time.time() - state.stat().st_mtime < IDLE_SECONDS and (running(state) or {}).get("pid") == own
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
