"""Domain errors. Each carries facts; each face has one table from these classes to status or code.

No error carries a secret's value, a whole body or anything of the server's insides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class DomainError(Exception):
    """Base of everything the core raises on purpose. ``code`` is the error's stable name."""

    code = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input: where, as a path of names and indexes, and why."""

    path: tuple[str | int, ...]
    detail: str

    def describe(self, root: str) -> str:
        """One line for people; ``root`` names the whole input. Long names are cut."""
        where = root
        for step in self.path:
            where += f"[{step}]" if isinstance(step, int) else f".{step[:64]}"
        return f"{where} {self.detail}"


class InvalidInput(DomainError):
    """An input breaks a rule. Nothing of it was stored."""

    code = "invalid_input"

    def __init__(self, faults: Sequence[Fault], detail: str = "") -> None:
        self.faults = tuple(faults)
        self.detail = detail or (self.faults[0].detail if self.faults else "The request is not valid.")
        super().__init__(self.detail)

    def describe(self, root: str) -> str:
        """All faults on one line; ``root`` names the whole input, such as ``params``."""
        return "; ".join(fault.describe(root) for fault in self.faults)


class NotAuthenticated(DomainError):
    """No key, an unknown key, one that was revoked or has expired, or a suspended tenant's."""

    code = "not_authenticated"


class ScopeMissing(DomainError):
    """The key is good but not for this."""

    code = "scope_missing"

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"the key lacks the scope {scope}")


class SessionNotFound(DomainError):
    """There is no such session for this caller; another tenant's is not told apart."""

    code = "session_not_found"


class HistoryKindUndeclared(DomainError):
    """The agent does not offer this kind of history."""

    code = "history_kind_undeclared"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"the agent does not offer {kind} history")


class AgentGone(DomainError):
    """The operator has removed the session's agent, or this key may not use it: no turn can run."""

    code = "agent_gone"

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__(f"the agent {agent} is not available")


class TurnAlreadyRunning(DomainError):
    """A session runs one turn at a time."""

    code = "turn_already_running"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id} is running a turn")


class AgentUnknown(DomainError):
    """There is no such agent for this caller."""

    code = "agent_unknown"

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__("there is no agent with this name")


class AddressTaken(DomainError):
    """Another session of the tenant has this URI."""

    code = "address_taken"

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__("a session with this URI exists")


class TurnUnknown(DomainError):
    """The session has no such turn."""

    code = "turn_unknown"


class NotPossible(DomainError):
    """The state that the action met does not allow it. ``reason`` is for people."""

    code = "not_possible"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class DispatchedBefore(DomainError):
    """The same action came before, over an earlier connection of the client. It was handled then."""

    code = "dispatched_before"


class BadCursor(DomainError):
    """A list cursor that this server never made for this tenant."""

    code = "bad_cursor"


class UnknownPosition(DomainError):
    """A stream position that this session never gave."""

    code = "unknown_position"


class PositionPruned(DomainError):
    """The events after this position are no longer all kept, or the position was lost in a crash."""

    code = "position_pruned"


class IdempotencyKeyReused(DomainError):
    """The idempotency key came before, with another body."""

    code = "idempotency_key_reused"


class QuotaExceeded(DomainError):
    """The tenant or the key has used what it may. Nothing of the request was stored.

    ``of_key``: it is the key's own limit. ``retry_after``: the seconds after which asking again makes sense.
    ``window``: the seconds that the limit is counted over, if it is.
    """

    code = "quota_exceeded"

    def __init__(self, quota: str, limit: int, retry_after: int, *, of_key: bool = False, window: int | None = None) -> None:
        self.quota, self.limit, self.retry_after = quota, limit, retry_after
        self.of_key, self.window = of_key, window
        super().__init__(f"over the quota {quota} of {limit} for this {'key' if of_key else 'tenant'}")


class SessionFull(DomainError):
    """The session has as many bytes stored as one may have: it can be read, cancelled and deleted, not continued."""

    code = "session_full"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"This session has {limit:,} bytes stored or more, which is the limit (AGENTHOST_SESSION_BYTES);"
            " it can be read and deleted, but not continued"
        )


class TooManyWrongKeys(DomainError):
    """The address showed too many keys that no tenant has."""

    code = "too_many_wrong_keys"

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__("too many wrong keys came from this address; this one was not looked up")


class NotReady(DomainError):
    """The server cannot do this now; the caller may try again."""

    code = "not_ready"

    def __init__(self, retry_after: int = 2) -> None:
        self.retry_after = retry_after
        super().__init__("the server is not ready")


class AnswersFull(NotReady):
    """The tenant's other large answers have not been read yet, and there is no room for this one beside them."""

    code = "answers_full"
