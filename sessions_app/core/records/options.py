"""A session's option values: one row per value, secrets encrypted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from agents_app.spec import AgentSpec
from sessions_app.core.base import raw_sql, sealing
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import OptionValue, Session


def _place(tenant: int, session: int, name: str) -> list[str | int]:
    return ["option", tenant, session, name]


def _place_of(row: OptionValue) -> list[str | int]:
    return _place(row.tenant_id, row.session_id, row.name)


def is_secret(spec: AgentSpec, name: str) -> bool:
    option = spec.option(name)
    return option is not None and option.type == "secret"


def masked(spec: AgentSpec, values: Mapping[str, str]) -> dict[str, str]:
    """The values as clients may see them: secrets as "***"."""
    return {name: sealing.MASK if is_secret(spec, name) else value for name, value in values.items()}


def store(session: Session, spec: AgentSpec, values: Mapping[str, str]) -> None:
    """Merge validated values into the session's.

    A secret "***" stays unchanged (a client sends back the mask that it was shown). An empty secret selects the operator's
    default, so its row is deleted.
    """
    if not values:
        return
    rows = {row.name: row for row in OptionValue.objects.filter(session=session)}
    position = max((row.position for row in rows.values()), default=0)
    for name, value in values.items():
        secret = is_secret(spec, name)
        if secret and value == sealing.MASK:
            continue
        if secret and value == "":
            OptionValue.objects.filter(session=session, name=name).delete()
            continue
        position += 1
        sealed = sealing.seal(value, _place(session.tenant_id, session.pk, name)) if secret else None
        stored = {"value": None if secret else value, "sealed": sealed}
        OptionValue.objects.update_or_create(
            session=session,
            name=name,
            defaults=stored,
            create_defaults={**stored, "tenant_id": session.tenant_id, "position": position},
        )


_SHOWN = "select session_id, name, value from sessions_app_optionvalue where session_id {among} order by session_id, position"


def shown(sessions: Iterable[int]) -> dict[int, dict[str, str]]:
    """The options of these sessions as clients may see them: secrets are masked without being decrypted."""
    found: dict[int, dict[str, str]] = {}
    for session, name, value in raw_sql.rows(_SHOWN, (list(sessions),)):
        found.setdefault(session, {})[name] = sealing.MASK if value is None else value
    return found


_VALUES = "select session_id, position, name, value, sealed from sessions_app_optionvalue where session_id {among}"
_TYPES = ("bigint", "bigint", "text", "text", "bytea")


def query(sessions: Sequence[int]) -> Statement:
    """The rows of these sessions' values, each with its session first; ``opened_rows`` reads the rest."""
    return Statement(_VALUES, [list(sessions)], types=_TYPES)


def opened_rows(tenant: int, session: int, rows: Rows) -> dict[str, str]:
    """The decrypted values of one session, for a run."""
    return {
        name: sealing.unseal(bytes(sealed or b""), _place(tenant, session, name)) if value is None else value
        for _, name, value, sealed in sorted(rows, key=itemgetter(0))
    }


def opened(tenant: int, session: int) -> dict[str, str]:
    return opened_rows(tenant, session, [row[1:] for row in raw_sql.rows(_VALUES, ([session],))])


def reseal() -> Iterator[tuple[int, int]]:
    """As ``sealing.reseal``."""
    return sealing.reseal(OptionValue, _place_of)


def newest_opens() -> bool:
    """Whether the key ring decrypts the newest secret; True if there is none."""
    return sealing.newest_opens(OptionValue.objects.all(), _place_of)
