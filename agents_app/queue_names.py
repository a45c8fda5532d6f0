"""Names of queues: an agent's turns are run by the workers that serve its queue. Pure."""

from __future__ import annotations

import re

DEFAULT = "default"
"""The queue of agents that name none."""
MOST_CHARACTERS = 40
MOST_OF_WORKER = 32
"""The most queues that one worker serves."""
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{MOST_CHARACTERS - 1}}}", re.ASCII)
_RULE = f"a queue's name has 1 to {MOST_CHARACTERS} lower-case letters, digits and hyphens, and begins with a letter"
_TAKEN = {
    "agenthost": f"the broker's name of the queue {DEFAULT}",
    "other": "what metrics call all queues beyond a limit",
    "unacked": "a key of Celery in Redis",
}


def fault(name: str) -> str | None:
    """Why a queue cannot have this name; None if it can."""
    if name in _TAKEN:
        return f"{name} is {_TAKEN[name]}; " + (f"did you mean {DEFAULT}?" if name == "agenthost" else "use another name")
    if _NAME.fullmatch(name):
        return None
    meant = re.sub(r"[^a-z0-9]+", "-", name.lower().lstrip("0123456789")).strip("-")
    return f"{_RULE}; did you mean {meant}?" if meant not in _TAKEN and _NAME.fullmatch(meant) else _RULE


def parsed(text: str) -> str:
    """The name; ``ValueError`` with the reason if a queue cannot have it."""
    if (reason := fault(text)) is not None:
        raise ValueError(reason)
    return text
