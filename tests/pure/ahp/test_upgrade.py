"""The key of a WebSocket upgrade."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.transport import upgrade

BEARER = (b"authorization", b"Bearer ah_1")


def scope(*headers: tuple[bytes, bytes], offered: tuple[str, ...] = (), query: bytes = b"") -> dict[str, Any]:
    return {"headers": list(headers), "subprotocols": list(offered), "query_string": query}


@pytest.mark.rule("V31", "V32")
@pytest.mark.parametrize(
    ("request_", "key"),
    [
        (scope(BEARER), "ah_1"),
        (scope(offered=("ahp", "bearer.ah_1")), "ah_1"),
        (scope(query=b"tkn=ah_1"), "ah_1"),
        (scope(query=b"token=ah_1"), "ah_1"),
        (scope(BEARER, offered=("ahp", "bearer.ah_1"), query=b"tkn=ah_1"), "ah_1"),
        (scope(BEARER, query=b"tkn=ah_2"), None),
        (scope(BEARER, offered=("bearer.ah_2",)), None),
        (scope(query=b"tkn=ah_1&token=ah_2"), None),
        (scope(BEARER, BEARER), None),
        (scope((b"authorization", b"Basic ah_1"), query=b"tkn=ah_1"), None),
        (scope(), None),
    ],
)
def test_several_keys_of_one_upgrade_must_be_the_same(request_: dict[str, Any], key: str | None) -> None:
    assert upgrade.key_of(request_) == key
