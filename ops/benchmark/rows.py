"""All rows of the benchmark, in the order of the table."""

from __future__ import annotations

from ops.benchmark import (
    cost_rows,
    file_rows,
    installation_rows,
    record_rows,
    session_rows,
    stream_rows,
    terminal_rows,
    tracing_rows,
    watcher_rows,
)

ROWS = (
    *stream_rows.ROWS,
    *session_rows.ROWS,
    *cost_rows.ROWS,
    *watcher_rows.ROWS,
    *installation_rows.ROWS,
    *terminal_rows.ROWS,
    *file_rows.ROWS,
    *record_rows.ROWS,
    *tracing_rows.ROWS,
)
