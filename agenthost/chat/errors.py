"""Exit codes of the chat for the client's errors."""

from __future__ import annotations

from agenthost.client.errors import ClientError, Refused, UsageError

KEY_REFUSED = 4


def exit_code(error: ClientError) -> int:
    match error:
        case Refused(status=401 | 403):
            return KEY_REFUSED
        case UsageError() | Refused(status=422):
            return 2
        case Refused():
            return 5
    return 3
