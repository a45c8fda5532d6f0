"""The network address of the client whose request or connection is being served, for audit records.

The process's edge sets it; work that is done for the client in threads and on loops has a copy of its context.
"""

from __future__ import annotations

from contextvars import ContextVar

current: ContextVar[str] = ContextVar("agenthost_client_address", default="")
"""Empty outside of requests, for example in a worker or a shell."""
