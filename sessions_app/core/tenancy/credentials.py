"""What clients authenticate with: keys and short-lived tokens."""

from __future__ import annotations

from collections.abc import Iterable

from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import OriginRefused
from sessions_app.core.tenancy import keys, origins, tokens


def looks_valid(raw: str) -> bool:
    """Whether this has the form of a key or token; pure and cheap."""
    return keys.looks_like_key(raw) or tokens.looks_like_token(raw)


def authenticate(raw: str) -> Caller:
    """The caller with this key or token. NotAuthenticated if it is not valid."""
    return tokens.authenticate(raw) if tokens.looks_like_token(raw) else keys.authenticate(raw)


def is_good(raw: str) -> bool:
    """Whether it would be accepted now. Does not count as a use."""
    return tokens.is_good(raw) if tokens.looks_like_token(raw) else keys.is_good(raw)


def require_origin(caller: Caller, *, sent: str | None, fetch_site: str | None, host: str) -> None:
    """OriginRefused if the caller's token is bound to another web origin than the request's, whose headers these are."""
    if caller.origin and not origins.is_from(caller.origin, sent=sent, fetch_site=fetch_site, host=host):
        raise OriginRefused


def current(callers: Iterable[Caller]) -> dict[tuple[int, int], Caller]:
    """The same callers as they are now, by ``identity``; those whose key or token has ended are left out."""
    of_keys, of_tokens = set(), set()
    for caller in callers:
        if caller.token:
            of_tokens.add(caller.token)
        else:
            of_keys.add(caller.key)
    found = [*keys.callers(of_keys).values(), *tokens.callers(of_tokens).values()]
    return {identity(caller): caller for caller in found}


def identity(caller: Caller) -> tuple[int, int]:
    """A key or a token among all."""
    return caller.key, caller.token
