"""What a list of sessions shows of each: its first message and its date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agenthost.chat.screen import text_of
from agenthost.client.agents import Agent
from agenthost.client.errors import ClientError
from agenthost.client.server import Server
from agenthost.client.session_use import date_text

_AT_ONCE = 4


async def about(server: Server, known: Sequence[Agent], found: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """First messages of the sessions, to recognize them by, and when they were last used."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def first_message(document: Mapping[str, Any]) -> str:
        agent = next((each for each in known if each.name == agent_of(document)), None)
        if agent is None or agent.history_kind is None:
            return ""
        try:
            async with limit:
                history = await server.short_history(str(document.get("sessionId")), agent.history_kind)
        except ClientError:
            # For example deleted meanwhile. The list still shows the other sessions.
            return ""
        return next((text_of(each.get("content")) for each in history if each.get("role") == "user"), "")

    summaries = list(await asyncio.gather(*map(first_message, found)))
    now = datetime.now().astimezone()
    dates = []
    for each in found:
        # One after the other: a server that does not report them is asked once.
        reported = await server.use(str(each.get("sessionId")))
        dates.append("" if reported is None else date_text(reported.modified_at, now))
    return summaries, dates


def agent_of(document: Mapping[str, Any]) -> str:
    """The name of a session's agent."""
    agent = document.get("agent")
    return str(agent.get("name", "")) if isinstance(agent, dict) else ""
