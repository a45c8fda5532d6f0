"""Gives Python's thread names to the kernel, for `ops/bench --profile`. Python does that itself from 3.14 on.

Every Python process that has this folder on its PYTHONPATH loads it at the start; nothing imports it.
"""

import contextlib
import sys
import threading
from pathlib import Path

if sys.version_info < (3, 14) and sys.platform == "linux":
    _start = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _start_named(self: threading.Thread) -> None:
        name = self.name.replace("ThreadPoolExecutor", "pool").encode(errors="replace")
        # A thread without a name of its own is shown by its process's.
        with contextlib.suppress(OSError):
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_bytes(name[:15])
        _start(self)

    threading.Thread._bootstrap_inner = _start_named  # type: ignore[attr-defined]
