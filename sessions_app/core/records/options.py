"""Option values of a session: stored one row a value, secret ones sealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agents_app.spec import AgentSpec
from sessions_app.core.base import raw_sql, sealing
from sessions_app.models import OptionValue, Session


def _place(tenant: int, session: int, name: str) -> list[str | int]:
    return ["option", tenant, session, name]


def store(session: Session, spec: AgentSpec, given: Mapping[str, str]) -> None:
    """Merge values that were found valid into the session's.

    A secret given as "***" stays as it is (a client sends back what it was shown); an empty secret
    means the operator's default, so its row goes.
    """
    if not given:
        return
    rows = {row.name: row for row in OptionValue.objects.filter(session=session)}
    position = max((row.position for row in rows.values()), default=0)
    for name, value in given.items():
        option = spec.option(name)
        secret = option is not None and option.type == "secret"
        if secret and value == sealing.MASK:
            continue
        if secret and value == "":
            OptionValue.objects.filter(session=session, name=name).delete()
            continue
        position += 1
        sealed = sealing.seal(value, _place(session.tenant_id, session.pk, name)) if secret else None
        OptionValue.objects.update_or_create(
            session=session,
            name=name,
            defaults={"value": None if secret else value, "sealed": sealed},
            create_defaults={
                "tenant_id": session.tenant_id,
                "value": None if secret else value,
                "sealed": sealed,
                "position": position,
            },
        )


_SHOWN = "select session_id, name, value from sessions_app_optionvalue where session_id {among} order by session_id, position"


def shown(sessions: Iterable[int]) -> dict[int, dict[str, str]]:
    """What clients may see, by session: secrets are masked without being opened."""
    found: dict[int, dict[str, str]] = {}
    for session, name, value in raw_sql.rows(_SHOWN, (list(sessions),)):
        found.setdefault(session, {})[name] = sealing.MASK if value is None else value
    return found


_VALUES = "select name, value, sealed from sessions_app_optionvalue where session_id = %s order by position"


def opened(tenant: int, session: int) -> dict[str, str]:
    """The true values, for a run."""
    return {
        name: sealing.unseal(bytes(sealed or b""), _place(tenant, session, name)) if value is None else value
        for name, value, sealed in raw_sql.rows(_VALUES, (session,))
    }


def reseal(batch: int) -> tuple[int, int]:
    """Seal values of older keys anew: how many were done, and how many of those met cannot be opened.

    Run until nothing is done: then the second number is that of the whole table.
    """
    newest, done, lost = sealing.newest_key_id(), 0, 0
    last = 0
    while done < batch:
        rows = list(OptionValue.objects.filter(sealed__isnull=False, pk__gt=last).order_by("pk")[:500])
        if not rows:
            break
        for row in rows:
            last = row.pk
            old = bytes(row.sealed or b"")
            if sealing.key_id_of(old) == newest:
                continue
            place = _place(row.tenant_id, row.session_id, row.name)
            if not sealing.opens(old, place):
                lost += 1
                continue
            fresh = sealing.seal(sealing.unseal(old, place), place)
            # Only if nobody set the option meanwhile.
            done += OptionValue.objects.filter(pk=row.pk, sealed=old).update(sealed=fresh)
    return done, lost


def newest_opens() -> bool:
    """Whether the key ring opens the newest secret; True if there is none."""
    row = OptionValue.objects.filter(sealed__isnull=False).order_by("-pk").first()
    return row is None or sealing.opens(bytes(row.sealed or b""), _place(row.tenant_id, row.session_id, row.name))
