"""What requests made from the schemas must leave out. Loaded by schemathesis, not by the tests."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Excludes streams that follow a session, because they never end."""
    if case.query and "follow" in case.query:
        case.query["follow"] = "false"
