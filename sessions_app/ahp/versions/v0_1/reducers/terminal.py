"""The reducers of a terminal's state (R450-R452)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, picked, replaced


def _data(state: Obj, action: Obj, _now: int) -> Obj:
    content, data = state["content"], action["data"]
    last = content[-1] if content else None
    if last is not None and last["type"] == "command" and not last["isComplete"]:
        longer = changed(last, output=last["output"] + data)
    elif last is not None and last["type"] == "unclassified":
        longer = changed(last, value=last["value"] + data)
    else:
        return changed(state, content=[*content, {"type": "unclassified", "value": data}])
    return changed(state, content=replaced(content, len(content) - 1, longer))


def _input(state: Obj, _action: Obj, _now: int) -> Obj:
    # Input is not in the state; the shell echoes it as output.
    return state


def _resized(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, cols=action["cols"], rows=action["rows"])


def _claimed(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, claim=action["claim"])


def _title(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, title=action["title"])


def _cwd(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, cwd=action["cwd"])


def _exited(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, exitCode=action.get("exitCode"))


def _cleared(state: Obj, _action: Obj, _now: int) -> Obj:
    return changed(state, content=[])


def _detection_available(state: Obj, _action: Obj, _now: int) -> Obj:
    return changed(state, supportsCommandDetection=True)


def _command_executed(state: Obj, action: Obj, _now: int) -> Obj:
    part = {
        "type": "command",
        "commandId": action["commandId"],
        "commandLine": action["commandLine"],
        "output": "",
        "timestamp": action["timestamp"],
        "isComplete": False,
    }
    return changed(state, content=[*state["content"], part], supportsCommandDetection=True)


def _command_finished(state: Obj, action: Obj, _now: int) -> Obj:
    wanted = action["commandId"]
    outcome = {"exitCode": None, "durationMs": None, **picked(action, "exitCode", "durationMs")}
    content = [
        changed(part, isComplete=True, **outcome) if part["type"] == "command" and part["commandId"] == wanted else part
        for part in state["content"]
    ]
    return changed(state, content=content)


TERMINAL: Mapping[str, Callable[[Obj, Obj, int], Obj]] = {
    "terminal/data": _data,
    "terminal/input": _input,
    "terminal/resized": _resized,
    "terminal/claimed": _claimed,
    "terminal/titleChanged": _title,
    "terminal/cwdChanged": _cwd,
    "terminal/exited": _exited,
    "terminal/cleared": _cleared,
    "terminal/commandDetectionAvailable": _detection_available,
    "terminal/commandExecuted": _command_executed,
    "terminal/commandFinished": _command_finished,
}
