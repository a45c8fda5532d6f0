"""Domain errors. Each carries facts; each protocol has one table from these classes to a status or code.

No error carries a secret, a whole request body or an internal detail of the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class DomainError(Exception):
    """Base class of the core's errors. ``code`` is the error's stable name."""

    code = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """One validation error: the path to the value (names and indexes) and the reason."""

    path: tuple[str | int, ...]
    detail: str

    def place(self, root: str = "") -> str:
        """The path for people, such as ``messages[0].content``; ``root`` names the whole input. Long names are cut."""
        where = root
        for step in self.path:
            where += f"[{step}]" if isinstance(step, int) else f".{step[:64]}"
        return where if root else where.removeprefix(".")

    def describe(self, root: str) -> str:
        """One line for people; ``root`` names the whole input."""
        return f"{self.place(root)} {self.detail}"


class InvalidInput(DomainError):
    """A request is not valid. Nothing was stored."""

    code = "invalid_input"

    def __init__(self, faults: Sequence[Fault], detail: str = "") -> None:
        self.faults = tuple(faults)
        self.detail = detail or (self.faults[0].detail if self.faults else "The request is not valid.")
        super().__init__(self.detail)

    def describe(self, root: str) -> str:
        """All faults on one line; ``root`` names the whole input, such as ``params``."""
        return "; ".join(fault.describe(root) for fault in self.faults)


class NotAuthenticated(DomainError):
    """The key is missing, unknown, revoked or expired, or its tenant is suspended."""

    code = "not_authenticated"


class ScopeMissing(DomainError):
    """The key is valid but lacks a scope."""

    code = "scope_missing"

    def __init__(self, scope: str, because: str = "") -> None:
        """``because``: why it is needed, if that does not follow from the request itself."""
        self.scope, self.because = scope, because
        super().__init__(f"the key lacks the scope {scope}" + (f": {because}" if because else ""))


class RightMissing(DomainError):
    """The account is signed in but its role does not include a right."""

    code = "right_missing"

    def __init__(self, right: str) -> None:
        self.right = right
        super().__init__(f"your role does not allow this (it lacks the right {right})")


class ReasonNeeded(DomainError):
    """The operator demands a reason for reading a transcript (AGENTHOST_TRANSCRIPT_REASON)."""

    code = "reason_needed"


class TenantNotFound(DomainError):
    """The tenant does not exist for this account. A tenant of others gives the same error."""

    code = "tenant_not_found"


class MemberNotFound(DomainError):
    """The tenant has no such member or open invitation."""

    code = "member_not_found"


class InvitationUnusable(DomainError):
    """The invitation does not exist, was used or withdrawn, or has expired."""

    code = "invitation_unusable"


class TokenLimited(DomainError):
    """The token may not do this: it is limited to one session, or tokens cannot do it at all."""

    code = "token_limited"

    def __init__(self, action: str) -> None:
        self.action = action
        super().__init__(f"this token may not {action}")


class OriginRefused(DomainError):
    """The token is bound to a web origin, and the request comes from another one, or from none."""

    code = "origin_refused"

    def __init__(self) -> None:
        super().__init__("this token is bound to another origin: send it from the pages for which it was made")


class TokenNotFound(DomainError):
    """The key has made no such token, or the token has ended. Another key's token gives the same error."""

    code = "token_not_found"


class KeyNotFound(DomainError):
    """The tenant has no such API key. Another tenant's key gives the same error."""

    code = "key_not_found"


class WebhookNotFound(DomainError):
    """The tenant has no such webhook or delivery."""

    code = "webhook_not_found"


class SessionNotFound(DomainError):
    """The session does not exist for this caller. Another tenant's session gives the same error."""

    code = "session_not_found"


class HistoryKindUndeclared(DomainError):
    """The agent does not offer this kind of history."""

    code = "history_kind_undeclared"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"the agent does not offer {kind} history")


class AgentGone(DomainError):
    """The session's agent was removed, or this key may not use it: no turn can run."""

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
    """The agent does not exist for this caller."""

    code = "agent_unknown"

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__(f"there is no agent {agent!r}")


class AddressTaken(DomainError):
    """Another session of the tenant has this URI."""

    code = "address_taken"

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__("a session with this URI exists")


class TerminalNotFound(DomainError):
    """The terminal does not exist for this caller. Another tenant's terminal gives the same error."""

    code = "terminal_not_found"


class TerminalTaken(DomainError):
    """A terminal or session of the tenant has this URI."""

    code = "terminal_taken"

    def __init__(self) -> None:
        super().__init__("a terminal or session with this URI exists")


class TerminalsUnavailable(DomainError):
    """This server cannot run terminals now. ``reason`` is for people."""

    code = "terminals_unavailable"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TurnUnknown(DomainError):
    """The session has no such turn."""

    code = "turn_unknown"


class NotPossible(DomainError):
    """The session's current state does not allow the action. ``reason`` is for people."""

    code = "not_possible"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class DispatchedBefore(DomainError):
    """The client sent the same action over an earlier connection, and it was handled then."""

    code = "dispatched_before"


class BadCursor(DomainError):
    """The list cursor was not issued by this server for this tenant."""

    code = "bad_cursor"


class UnknownPosition(DomainError):
    """The stream position does not exist in this session."""

    code = "unknown_position"


class PositionPruned(DomainError):
    """Some events after this position were deleted, or the position was lost in a database crash."""

    code = "position_pruned"


class IdempotencyKeyReused(DomainError):
    """The idempotency key was used before with another body."""

    code = "idempotency_key_reused"


class QuotaExceeded(DomainError):
    """A quota of the tenant or the key is used up. Nothing was stored.

    ``of_key``: the quota is the key's own. ``retry_after``: seconds after which a retry makes sense.
    ``window``: length of the quota's time window in seconds, if it has one.
    """

    code = "quota_exceeded"

    def __init__(self, quota: str, limit: int, retry_after: int, *, of_key: bool = False, window: int | None = None) -> None:
        self.quota, self.limit, self.retry_after = quota, limit, retry_after
        self.of_key, self.window = of_key, window
        super().__init__(f"over the quota {quota} of {limit} for this {'key' if of_key else 'tenant'}")


class SessionFull(DomainError):
    """The session has reached its size limit: it can be read, cancelled and deleted, but not continued."""

    code = "session_full"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"The session has reached the size limit of {limit:,} bytes (AGENTHOST_SESSION_BYTES);"
            " it can be read and deleted, but not continued"
        )


class PathOutside(DomainError):
    """The URI is not in a workspace that the caller may use. The same error whether or not anything exists there."""

    code = "path_outside"


class AccessDenied(DomainError):
    """The operator's rules of access do not permit this. The same error whether or not anything exists there."""

    code = "access_denied"


class AccessNeeded(DomainError):
    """The operator's rules of access want the client to ask for this first. ``operations``: of ``read`` and ``write``."""

    code = "access_needed"

    def __init__(self, uri: str, operations: Sequence[str]) -> None:
        self.uri, self.operations = uri, operations
        super().__init__("access to this has to be requested first")


class PathNotFound(DomainError):
    """There is no such file or directory in the workspace."""

    code = "path_not_found"


class PathTaken(DomainError):
    """A file or directory exists there, and the operation must not overwrite it."""

    code = "path_taken"


class FileChanged(DomainError):
    """The file is not the one that the client has seen: it was changed, replaced or deleted since."""

    code = "file_changed"


class ContentNotFound(DomainError):
    """The session, or the content that the URI names in it, does not exist."""

    code = "content_not_found"


class WorkspaceFull(DomainError):
    """The operation needs more room than a quota leaves. Nothing was changed.

    ``what``: what is counted, such as "bytes in a workspace". ``setting``: the variable with the limit.
    """

    code = "workspace_full"

    def __init__(self, what: str, limit: int, setting: str) -> None:
        self.what, self.limit, self.setting = what, limit, setting
        super().__init__(f"over the limit of {limit:,} {what} ({setting})")


class WorkspacesOff(DomainError):
    """This server has no workspaces."""

    code = "workspaces_off"


class WatchesOff(DomainError):
    """This server cannot watch files: its system or the volume's file system has no complete notifications."""

    code = "watches_off"


class TooManyWrongKeys(DomainError):
    """Too many unknown keys came from this client address."""

    code = "too_many_wrong_keys"

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__("too many unknown keys came from this address; this one was not looked up")


class NotReady(DomainError):
    """The server cannot do this now; the client may retry."""

    code = "not_ready"

    def __init__(self, retry_after: int = 2) -> None:
        self.retry_after = retry_after
        super().__init__("the server is not ready")


class FilesAway(NotReady):
    """The volume of the workspaces is missing, is another one, is full or does not answer."""

    code = "files_away"


class TemplateUnusable(FilesAway):
    """The template with which a workspace begins is missing, too large or not readable on this host."""

    code = "template_unusable"

    def __init__(self) -> None:
        super().__init__()
        self.args = ("the files that a workspace of this agent begins with cannot be used on this host",)


class AnswersFull(NotReady):
    """No memory is left for this large response: the tenant's clients have not read earlier ones yet."""

    code = "answers_full"
