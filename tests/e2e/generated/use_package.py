"""Uses a package that openapi-python-client has made of one version's document, against a server that runs.

    use_package.py FOLDER PACKAGE VERSION BASE_URL KEY

Run by the generator's own Python, which has what such packages need. Imports nothing of the server.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any


def main(folder: str, package: str, version: int, base_url: str, key: str) -> None:
    sys.path.insert(0, folder)
    root = importlib.import_module(package)
    modules = {
        found.name.removeprefix(f"{package}."): importlib.import_module(found.name)
        for found in pkgutil.walk_packages(root.__path__, f"{package}.")
    }
    models: Any = modules["models"]
    client: Any = root.AuthenticatedClient(base_url=base_url, token=key, timeout=60)

    def call(operation: str, *args: Any, **kwargs: Any) -> Any:
        [module] = [module for name, module in modules.items() if name.startswith("api.") and name.endswith(f".{operation}")]
        return module.sync_detailed(*args, client=client, **kwargs)

    meta = call("get_meta").parsed
    assert meta.version == version
    assert "demo" in [agent.name for agent in meta.agents]

    hello = models.UserMessage(role="user", content="What can you do?")
    if version == 3:
        made = call("create_session", body=models.NewSession(agent=models.NewSessionAgent(name="demo")))
        session = made.parsed.session_id
        answer = call("send_turn", session, body=models.TurnRequest(messages=[hello])).parsed
    else:
        opening = models.SessionOpening(agent=models.SessionOpeningAgent(name="demo"), messages=[hello])
        made = call("open_session", body=opening)
        session, answer = made.parsed.session_id, made.parsed
    assert made.status_code == 201
    assert answer.stop_reason == models.StopReason.END_TURN
    assert isinstance(answer.messages[0].content[-1], models.TextBlock)

    asked = models.TurnRequest(
        messages=[models.UserMessage(role="user", content=[models.TextBlock(type_="text", text="What is 17 * 23?")])],
        agent=models.TurnRequestAgent(tools=[models.ToolReference(name="calculator")]),
    )
    waiting = call("send_turn", session, body=asked).parsed
    assert waiting.stop_reason == models.StopReason.TOOL_USE
    [wanted] = [block for block in waiting.messages[-1].content if isinstance(block, models.ToolUseBlock)]
    assert wanted.input_.to_dict() == {"expression": "17 * 23"}
    permission = models.ToolPermission(role="tool_permission", tool_call_id=wanted.tool_call_id, granted=True)
    done = call("send_turn", session, body=models.TurnRequest(messages=[permission])).parsed
    assert (done.messages[0].tool_call_id, done.messages[0].content) == (wanted.tool_call_id, "391")

    if version == 1:
        history = call("get_session", session, history=models.GetSessionHistory.FULL).parsed.history.full
    else:
        full = call("get_history", session, type_=models.GetHistoryType.FULL).parsed
        assert isinstance(full, models.FullHistory)
        compacted = call("get_history", session, type_=models.GetHistoryType.COMPACTED).parsed
        assert isinstance(compacted, models.CompactedHistory)
        assert compacted.history.compacted == full.history.full
        history = full.history.full
    assert [line.role for line in history] == ["user", "assistant", "user", "assistant", "tool", "assistant"]

    listed = call("list_sessions").parsed.sessions
    assert session in (listed if version == 1 else [each.session_id for each in listed])
    assert call("get_session", session).parsed.agent.name == "demo"
    assert isinstance(call("cancel_turn", session, body=models.CancelRequest()).parsed, models.NothingCancelled)
    missing = call("get_session", "sess_nobody").parsed
    assert isinstance(missing, models.Problem)
    assert missing.status == models.ProblemStatus.VALUE_404
    assert call("delete_session", session).status_code == 204


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
