"""The spans of one run, in the trace of its turn. Spans of model calls and tools are the agent loop's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agents_app import tracing
from agents_app.errors import RunLost
from sessions_app.core.base import traces
from sessions_app.core.base.events import Happening
from sessions_app.core.turns import Claimed
from sessions_app.core.worker.loading import Loaded


class RunSpans:
    """Reports a run to its turn's trace. Does nothing for a turn that was accepted without tracing."""

    def __init__(self, claimed: Claimed, loaded: Loaded) -> None:
        self._claimed, self._loaded = claimed, loaded
        self._span = tracing.NOTHING

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The span of the run, and before it that of its claim."""
        trace = traces.context_of(self._loaded.trace)
        if trace is None:
            yield
            return
        if not self._loaded.takeovers:
            traces.claimed(trace, self._loaded.queued_at, self._loaded.queue)
        lost: RunLost | None = None
        with tracing.span("run", attributes=self._about(), parent=trace) as self._span:
            try:
                yield
            except RunLost as error:
                # Not a failure: the turn has ended, or goes on elsewhere.
                lost = error
        if lost is not None:
            raise lost

    @staticmethod
    def commit(happenings: Sequence[Happening]) -> tracing.span:
        """The span of a commit point."""
        kinds = [str(each.kind) for each in happenings] if tracing.is_on() else ()
        return tracing.span("commit", attributes={"agenthost.events": kinds})

    def first_output(self, seconds: float) -> None:
        self._span.set({"agenthost.turn.first_output_seconds": seconds})

    def waiting(self) -> None:
        self._span.set({"agenthost.run.outcome": "waiting"})

    def handed_over(self) -> None:
        self._span.set({"agenthost.run.outcome": "handed_over"})

    def turn_ended(self, outcome: str, error: str, tokens: tuple[int, int, int]) -> None:
        """The end of the turn is stored. ``tokens``: input, output, cached input."""
        if self._loaded.trace is None:
            return
        self._span.set({"agenthost.run.outcome": "ended"})
        about = {
            **self._about(),
            "agenthost.turn.outcome": outcome,
            "gen_ai.usage.input_tokens": tokens[0],
            "gen_ai.usage.output_tokens": tokens[1],
            "gen_ai.usage.cache_read.input_tokens": tokens[2] or None,
        }
        traces.ended(self._loaded.trace, self._loaded.created_at, self._loaded.spec.name, error, about)

    def _about(self) -> tracing.Attributes:
        loaded = self._loaded
        return {
            **traces.turn_ids(self._claimed.tenant, loaded.session_public_id, loaded.public_id, loaded.run, loaded.queue),
            "gen_ai.agent.name": loaded.spec.name,
            "agenthost.run.takeover": loaded.takeovers,
        }
