"""Loads the data of claimed runs, of several runs at once.

Every turn pays for this, so it is one round trip whatever the number of runs, on Postgres with one prepared statement; the
round trip of the claim's barrier, for runs with short histories. Agents' definitions are cached per process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.utils import timezone

from agents_app import exact_json, queue_names
from agents_app.runtime import long_work
from agents_app.runtime.messages import Message
from agents_app.spec import AgentSpec
from sessions_app.core.base import raw_sql, times
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import options, session_settings, stored_messages
from sessions_app.core.records.session_settings import Settings
from sessions_app.core.tenancy import agents, definitions, quotas
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage


@dataclass(slots=True)
class Loaded:
    """The data that a run reads before it starts."""

    public_id: str
    session_public_id: str
    run: int
    step: int
    parts: list[dict[str, object]]
    spec: AgentSpec
    options: dict[str, str] = field(repr=False)
    settings: Settings
    messages: list[Message] = field(repr=False)
    tokens: tuple[int, int, int]
    seconds_left: float | None
    """Seconds until the client's deadline for this run (A123)."""
    has_calls: bool
    """Whether the turn has calls; a new turn has none."""
    budget: quotas.TokenBudget | None
    approval: str = ""
    own_tools: frozenset[str] = frozenset()
    """Tools that were found with this session's own secrets. They are active, because clients do not know them to enable them."""
    stored: int = 0
    """Bytes of the messages that earlier runs of the turn have stored."""
    attention: bool = False
    """The session has or had clients or pending messages, so the run has to look for changes between steps."""
    archived: bool = False
    created_at: datetime = field(default_factory=timezone.now)
    began: str | None = None
    """When the turn began, as text; None: a turn of an earlier release."""
    client: str | None = None
    """The client of AHP that started the turn."""
    attempt: int = 1
    queued_at: datetime = field(default_factory=timezone.now)
    takeovers: int = 0
    trace: str | None = None
    """See core/base/traces.py."""
    queue: str = queue_names.DEFAULT
    last_position: int = 0
    """That of the session's last message, if the turn was reopened: models do not get all messages then."""


_TURNS = """
select t.id, t.public_id, s.public_id, t.run, t.step, t.parts, t.definition_id, d.digest, s.tool_refs, s.client_tools,
 t.input_tokens, t.output_tokens, t.cache_read_tokens, {seconds_left},
 exists (select 1 from sessions_app_toolcall c where c.turn_id = t.id),
 t.api_key_id, x.max_tokens_per_day, k.max_tokens_per_day, s.approval, t.attention, s.archived, t.began,
 cast(t.created_at as text), case when t.model_named then t.model end, t.client,
 case when t.step > 0 then (select coalesce(sum({octets}(cast(m.content as {octets_type}))
  + coalesce({octets}(cast(m.provider_data as {octets_type})), 0)), 0)
  from sessions_app_message m where m.turn_id = t.id and m.role <> 'user') else 0 end,
 t.attempt, case when t.attempt > 1 then (select max(m.position) from sessions_app_message m where m.session_id = t.session_id)
  else 0 end,
 cast(t.queued_at as text), t.takeovers, t.trace, t.queue
from sessions_app_turn t
join sessions_app_session s on s.id = t.session_id
join sessions_app_agentdefinition d on d.id = t.definition_id
join sessions_app_tenant x on x.id = t.tenant_id
left join sessions_app_apikey k on k.id = t.api_key_id
where t.id {among}
"""
_TYPES = (
    *("bigint", "text", "text", "bigint", "bigint", "text", "bigint", "text", "text", "text"),
    *(
        "bigint",
        "bigint",
        "bigint",
        "numeric",
        "boolean",
        "bigint",
        "bigint",
        "bigint",
        "text",
        "boolean",
        "boolean",
        "text",
        "text",
        "text",
        "text",
    ),
    *("numeric", "bigint", "bigint"),
    *("text", "bigint", "text", "text"),
)


_LOADED_WITH_CLAIM = 64 * 1024
"""Limit of bytes of the histories that are loaded together with a claim, whose parsing delays the loop by some 2 ms."""


def load(claims: Sequence[Claimed]) -> dict[int, Loaded | Exception]:
    """By turn. An error that concerns one run only is that run's value."""
    return _parsed(claims, _read(claims))


class LoadWithClaim:
    """Loads the runs with the shortest histories together with their claim's barrier (``turns.claim``).

    The other runs are loaded when they start, in their tenants' shares of threads. Loaded here, one tenant's long histories
    would delay all runs of this claim and the next claim. ``begin`` gets all runs; those that are missing in its second
    argument are not loaded.
    """

    def __init__(self, begin: Callable[[Sequence[Claimed], dict[int, Loaded | Exception]], object]) -> None:
        self._begin = begin
        self._runs: list[Claimed] = []
        self._short: list[Claimed] = []

    def queries(self, runs: Mapping[Claimed, int]) -> list[Statement]:
        self._runs = list(runs)
        left = _LOADED_WITH_CLAIM
        for claimed, stored in sorted(runs.items(), key=lambda each: each[1]):
            left -= stored
            if left < 0:
                break
            self._short.append(claimed)
        return _queries(self._short) if self._short else []

    def begin(self, rows: list[Rows]) -> None:
        try:
            loaded = _parsed(self._short, rows) if self._short else {}
        except Exception:
            # One history cannot be parsed: each run is loaded separately, and only that one fails.
            loaded = {}
        self._begin(self._runs, loaded)


def _queries(claims: Sequence[Claimed]) -> list[Statement]:
    sessions = [claimed.session for claimed in claims]
    return [
        stored_messages.query_for_models(sessions),
        Statement(_TURNS, [[claimed.turn_id for claimed in claims]], types=_TYPES),
        options.query(sessions),
    ]


def _read(claims: Sequence[Claimed]) -> list[Rows]:
    return raw_sql.rows_of_each(_queries(claims))


def _parsed(claims: Sequence[Claimed], rows: Sequence[Rows]) -> dict[int, Loaded | Exception]:
    messages = stored_messages.parse_for_models([claimed.session for claimed in claims], rows[0])
    return _all_loaded(claims, rows, messages)


def _all_loaded(
    claims: Sequence[Claimed], rows: Sequence[Rows], messages: dict[int, list[Message]]
) -> dict[int, Loaded | Exception]:
    by_turn = {claimed.turn_id: claimed for claimed in claims}
    option_rows: dict[int, Rows] = {}
    for row in rows[2]:
        option_rows.setdefault(row[0], []).append(row[1:])
    loaded: dict[int, Loaded | Exception] = {}
    for row in rows[1]:
        claimed = by_turn[row[0]]
        try:
            values = options.opened_rows(claimed.tenant, claimed.session, option_rows.get(claimed.session, []))
            loaded[claimed.turn_id] = _loaded(claimed.tenant, messages.get(claimed.session, []), row, values)
        except Exception as error:  # a definition or a secret that cannot be read ends this run only
            loaded[claimed.turn_id] = error
    return loaded


async def load_one(claimed: Claimed) -> Loaded:
    """Load one run; raises its error. A long history is parsed in a thread for long work, not in a database thread."""
    loaded, lines = await outage.run_for(claimed.tenant, _read_one, claimed)
    if lines is not None:
        parse = partial(stored_messages.parse_for_models, [claimed.session], lines)
        loaded.messages = (await long_work.call(claimed.tenant, parse, lines))[claimed.session]
    return loaded


def _read_one(claimed: Claimed) -> tuple[Loaded, Rows | None]:
    """The run, and the rows of its messages if they are too long to be parsed here."""
    rows = _read([claimed])
    long = long_work.is_long(rows[0])
    messages = {} if long else stored_messages.parse_for_models([claimed.session], rows[0])
    loaded = _all_loaded([claimed], rows, messages)[claimed.turn_id]
    if isinstance(loaded, Exception):
        raise loaded
    return loaded, rows[0] if long else None


def _loaded(tenant: int, messages: list[Message], row: Sequence[Any], values: dict[str, str]) -> Loaded:
    (_, public_id, session, run, step, parts, definition, digest, tool_refs, client_tools, *rest) = row
    (
        sent,
        received,
        cached,
        seconds_left,
        has_calls,
        key,
        of_tenant,
        of_key,
        approval,
        attention,
        archived,
        began,
        created_at,
        own_model,
        client,
        stored,
        attempt,
        last_position,
        queued_at,
        takeovers,
        trace,
        queue,
    ) = rest
    return Loaded(
        public_id=public_id,
        session_public_id=session,
        run=run,
        step=step,
        parts=exact_json.loads(parts),
        spec=definitions.by_digest(definition, digest),
        options=values if own_model is None else {**values, agents.MODEL: own_model},
        settings=session_settings.parsed(tool_refs, client_tools),
        messages=messages,
        tokens=(sent, received, cached),
        seconds_left=None if seconds_left is None else float(seconds_left),
        has_calls=bool(has_calls),
        budget=quotas.token_budget(tenant, of_tenant, key, of_key),
        approval=approval,
        stored=int(stored),
        attention=bool(attention),
        archived=bool(archived),
        created_at=times.moment(created_at),
        began=began,
        client=client,
        attempt=attempt,
        last_position=last_position or 0,
        queued_at=times.moment(queued_at),
        takeovers=takeovers,
        trace=trace,
        queue=queue,
    )
