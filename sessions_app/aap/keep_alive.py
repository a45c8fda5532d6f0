"""When a quiet stream has to send a keep-alive."""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.core.base import shared_timer


class Quiet:
    """One stream, within a ``with`` block. It is due when it has sent nothing for ``seconds``."""

    __slots__ = ("_on_due", "_timer", "is_due")

    def __init__(self, seconds: float) -> None:
        self._timer = shared_timer.of_loop(seconds)
        self.is_due = False
        self._on_due: Callable[[], object] = _do_nothing

    def __enter__(self) -> Quiet:
        self.sent()
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.remove(self)
        self._on_due = _do_nothing

    def sent(self) -> None:
        """Something was sent: the stream is due ``seconds`` from now."""
        self.is_due = False
        self._timer.put(self)

    def wake(self, call: Callable[[], object]) -> None:
        """Call this when the stream is due; immediately if it is."""
        self._on_due = call
        if self.is_due:
            call()

    def due(self) -> None:
        self.is_due = True
        self._on_due()


def _do_nothing() -> None:
    pass
