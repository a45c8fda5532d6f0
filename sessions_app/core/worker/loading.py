"""Loads the data of claimed runs, of several runs at once.

Every turn pays for this, so it is one query for the sizes of histories and one round trip with two prepared statements,
whatever the number of runs. Agents' definitions are cached per process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models.functions import Now

from agents_app import exact_json
from agents_app.runtime import long_work
from agents_app.runtime.messages import Message
from agents_app.spec import AgentSpec
from sessions_app.core.base import raw_sql
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import options, session_settings, stored_messages
from sessions_app.core.records.session_settings import Settings
from sessions_app.core.tenancy import definitions, quotas
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage
from sessions_app.models import Turn


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


_TURNS = """
select t.id, t.public_id, s.public_id, t.run, t.step, t.parts, t.definition_id, d.digest, s.tool_refs, s.client_tools,
 t.input_tokens, t.output_tokens, t.cache_read_tokens, t.deadline_at is not null,
 exists (select 1 from sessions_app_toolcall c where c.turn_id = t.id),
 exists (select 1 from sessions_app_optionvalue o where o.session_id = s.id),
 t.api_key_id, x.max_tokens_per_day, k.max_tokens_per_day, s.approval, t.attention,
 case when t.step > 0 then (select coalesce(sum({octets}(cast(m.content as {octets_type}))
  + coalesce({octets}(cast(m.provider_data as {octets_type})), 0)), 0)
  from sessions_app_message m where m.turn_id = t.id and m.role <> 'user') else 0 end
from sessions_app_turn t
join sessions_app_session s on s.id = t.session_id
join sessions_app_agentdefinition d on d.id = t.definition_id
join sessions_app_tenant x on x.id = t.tenant_id
left join sessions_app_apikey k on k.id = t.api_key_id
where t.id {among}
"""


_LOADED_WITH_CLAIM = 256 * 1024
"""Limit of bytes of the histories that are loaded together with a claim, which takes some 10 ms."""


def load_short(claims: Sequence[Claimed]) -> dict[int, Loaded | Exception]:
    """``load`` the runs with the shortest histories.

    The other runs are loaded when they start, in their tenants' shares of threads. Loaded here, one tenant's long histories
    would delay all runs of this claim and the next claim.
    """
    stored = quotas.bytes_of_sessions({claimed.session: claimed.tenant for claimed in claims})
    left, short = _LOADED_WITH_CLAIM, []
    for claimed in sorted(claims, key=lambda each: stored.get(each.session, 0)):
        left -= stored.get(claimed.session, 0)
        if left < 0:
            break
        short.append(claimed)
    return load(short) if short else {}


def load(claims: Sequence[Claimed]) -> dict[int, Loaded | Exception]:
    """By turn. An error that concerns one run only is that run's value."""
    lines, rows = _read(claims)
    return _all_loaded(claims, rows, stored_messages.parse_for_models([claimed.session for claimed in claims], lines))


def _read(claims: Sequence[Claimed]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The rows of the messages, and the rows of the turns."""
    query = stored_messages.query_for_models([claimed.session for claimed in claims])
    lines, rows = raw_sql.rows_of_each([query, Statement(_TURNS, [[claimed.turn_id for claimed in claims]])])
    return lines, rows


def _all_loaded(
    claims: Sequence[Claimed], rows: Sequence[tuple[Any, ...]], messages: dict[int, list[Message]]
) -> dict[int, Loaded | Exception]:
    by_turn = {claimed.turn_id: claimed for claimed in claims}
    loaded: dict[int, Loaded | Exception] = {}
    for row in rows:
        claimed = by_turn[row[0]]
        try:
            loaded[claimed.turn_id] = _loaded(claimed, messages.get(claimed.session, []), row)
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


def _read_one(claimed: Claimed) -> tuple[Loaded, list[tuple[Any, ...]] | None]:
    """The run, and the rows of its messages if they are too long to be parsed here."""
    lines, rows = _read([claimed])
    long = long_work.is_long(lines)
    messages = {} if long else stored_messages.parse_for_models([claimed.session], lines)
    loaded = _all_loaded([claimed], rows, messages)[claimed.turn_id]
    if isinstance(loaded, Exception):
        raise loaded
    return loaded, lines if long else None


def _loaded(claimed: Claimed, messages: list[Message], row: Sequence[Any]) -> Loaded:
    (_, public_id, session, run, step, parts, definition, digest, tool_refs, client_tools, *rest) = row
    (sent, received, cached, has_deadline, has_calls, has_options, key, of_tenant, of_key, approval, attention, stored) = rest
    return Loaded(
        public_id=public_id,
        session_public_id=session,
        run=run,
        step=step,
        parts=exact_json.loads(parts),
        spec=definitions.by_digest(definition, digest),
        options=options.opened(claimed.tenant, claimed.session) if has_options else {},
        settings=session_settings.parsed(tool_refs, client_tools),
        messages=messages,
        tokens=(sent, received, cached),
        seconds_left=_seconds_left(claimed.turn_id) if has_deadline else None,
        has_calls=bool(has_calls),
        budget=quotas.token_budget(claimed.tenant, of_tenant, key, of_key),
        approval=approval,
        stored=int(stored),
        attention=bool(attention),
    )


def _seconds_left(turn_id: int) -> float:
    deadline, now = Turn.objects.values_list("deadline_at", Now()).get(pk=turn_id)
    left: timedelta = deadline - now
    return left.total_seconds()
