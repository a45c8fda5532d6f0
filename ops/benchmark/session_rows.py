"""Rows about sessions: creating and listing them, long histories."""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median

from ops.benchmark import load
from ops.benchmark.figures import Figure, percentile
from ops.benchmark.installation import LONG_TALK
from ops.benchmark.load import Aap, Line, LoadError, Watched
from ops.benchmark.setting import SINGLE, Bench, Cpu, Row, ms


async def _create(bench: Bench) -> list[Figure]:
    cpu = Cpu(bench)
    rate = await creation_rate(bench)
    return [
        Figure("sessions created, 16 at once", "a second", rate, beside_at_least=6, decimals=0),
        *await cpu.figures(bench.size.creations, "session created", 1e3, "ms"),
    ]


async def creation_rate(bench: Bench) -> float:
    ours = bench.ours
    connections = await ours.connections(16)
    asked = ours.creation(SINGLE)
    left = bench.size.creations

    async def one(connection: load.Connection) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await connection.ask(asked)

    began = time.monotonic()
    await asyncio.gather(*(one(connection) for connection in connections))
    took = time.monotonic() - began
    for connection in connections:
        connection.close()
    return bench.size.creations / took


_MANY_SESSIONS = """
insert into sessions_app_session (tenant_id, public_id, agent_name, client_tools, created_at, modified_at)
select t.id, 'sess_bench' || t.id || '_' || n, %s, '[]', now() - n * interval '1 second', now() - n * interval '1 second'
from sessions_app_tenant t, generate_series(1, %s) n where t.slug = %s
"""


async def _list(bench: Bench) -> list[Figure]:
    figures = []
    for count in bench.size.lists:
        key = bench.kept.get(f"list {count}")
        if key is None:
            bench.say(f"making {count:,} sessions")
            slug = f"bench-list-{count}"
            key = bench.kept[f"list {count}"] = bench.installation.issue_key(slug)
            with bench.installation.database() as connection:
                connection.execute(_MANY_SESSIONS, (SINGLE, count, slug))
                connection.execute("vacuum analyze sessions_app_session")
        took = await _walk(bench.installation.target(key), bench.size.list_requests)
        at_most = 20.0 if count == 1_000_000 else None
        figures.append(Figure(f"list of 50 among {count:,} sessions, p95", "ms", ms(percentile(took, 0.95)), at_most=at_most))
    return figures


async def _walk(ours: Aap, requests: int) -> list[float]:
    """The duration of each page request: page after page, starting again after the last."""
    (connection,) = await ours.connections(1)
    took = []
    cursor: str | None = None
    for _ in range(requests):
        began = time.monotonic()
        page = json.loads(await connection.ask(ours.get("sessions" if cursor is None else f"sessions?after={cursor}")))
        took.append(time.monotonic() - began)
        if len(page["sessions"]) != 50:
            raise LoadError(f"a page of {len(page['sessions'])} sessions instead of 50")
        cursor = page.get("next")
    connection.close()
    return took


async def _history(bench: Bench) -> list[Figure]:
    figures = []
    ours = bench.ours
    for count in bench.size.histories:
        (connection,) = await ours.connections(1)
        try:
            # A new session each time, because the turns below make it longer.
            said = [{"role": "assistant" if n % 2 else "user", "content": f"Message {n} of a long talk."} for n in range(count)]
            session = await ours.session(connection, SINGLE, said)
            took = []
            for _ in range(bench.size.history_requests):
                began = time.monotonic()
                await connection.ask(ours.get(f"sessions/{session}/history?type=full"))
                took.append(time.monotonic() - began)
            watched = await load.in_turn(Line(connection, ours.turn(session)), bench.size.history_requests)
        finally:
            connection.close()
        load.check(watched, 5)
        figures.append(Figure(f"history of {count:,} messages read", "ms", ms(median(took))))
        figures.append(Figure(f"first delta behind {count:,} messages", "ms", ms(median(each.first for each in watched))))
    return figures


async def _long_talk(bench: Bench) -> list[Figure]:
    """Turns in a conversation of ten messages and in one of thousands, whose beginning was summarised in a first turn."""
    ours = bench.ours
    short, long = bench.size.histories[0], bench.size.histories[-1]
    connections = await ours.connections(2)
    lines: dict[int, Line] = {}
    watched: dict[int, list[Watched]] = {short: [], long: []}
    try:
        for count, connection in zip((short, long), connections, strict=True):
            said = [{"role": "assistant" if n % 2 else "user", "content": f"Message {n} of a long talk."} for n in range(count)]
            lines[count] = Line(connection, ours.turn(await ours.session(connection, LONG_TALK, said)))
            await load.in_turn(lines[count], 3)
        # In alternation, so that both see the same state of the machine.
        for _ in range(bench.size.single_turns):
            for count, line in lines.items():
                watched[count] += await load.in_turn(line, 1)
    finally:
        for connection in connections:
            connection.close()
    firsts = {count: ms(median(each.first for each in found)) for count, found in watched.items()}
    for found in watched.values():
        load.check(found, 5)
    what = f"first delta behind {long:,} messages that were summarised (floor: behind {short:,})"
    return [Figure(what, "ms", firsts[long], firsts[short])]


ROWS = (
    Row("create", "sessions created by 16 clients at once", _create, (Aap,)),
    Row("list", "a list of 50 among ever more sessions", _list),
    Row("history", "ever longer histories", _history),
    Row("long-talk", "a conversation of thousands of messages that was summarised beside one of ten", _long_talk),
)
