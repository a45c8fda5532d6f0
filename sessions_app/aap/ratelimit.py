"""The RateLimit headers (A122): a caller's limits and how much of them is left.

Structured fields of the IETF draft `RateLimit header fields for HTTP`: `RateLimit-Policy` names the limits, `RateLimit`
has the rest of each and the seconds until it is renewed.
"""

from __future__ import annotations

from collections.abc import Iterable

from sessions_app.core.base.errors import QuotaExceeded
from sessions_app.core.tenancy.quotas import Quota, RateStatus

_AT_ONCE = (Quota.TURNS_AT_ONCE, Quota.STREAMS_AT_ONCE, Quota.CONNECTIONS_AT_ONCE)
_LARGEST = 999_999_999_999_999
"""A structured field's integer has at most 15 digits."""


def of_standings(standings: Iterable[RateStatus]) -> dict[str, str]:
    """Headers of an accepted request; none if no rate applies."""
    found = list(standings)
    if not found:
        return {}
    return {
        "RateLimit-Policy": ", ".join(
            f"{_name(each.quota, each.of_key)};q={_integer(each.limit)};w={each.window}" for each in found
        ),
        "RateLimit": ", ".join(f"{_name(each.quota, each.of_key)};r={_integer(each.left)};t={each.seconds}" for each in found),
    }


def of_refusal(error: QuotaExceeded) -> dict[str, str]:
    name = _name(error.quota, error.of_key)
    unit = ';qu="concurrent-requests"' if error.quota in _AT_ONCE else ""
    window = "" if error.window is None else f";w={error.window}"
    return {
        "Retry-After": str(error.retry_after),
        "RateLimit-Policy": f"{name};q={_integer(error.limit)}{unit}{window}",
        "RateLimit": f"{name};r=0;t={error.retry_after}",
    }


def _name(quota: str, of_key: bool) -> str:
    return f'"{quota}-of-key"' if of_key else f'"{quota}"'


def _integer(value: int) -> int:
    return min(value, _LARGEST)
