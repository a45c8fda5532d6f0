"""The versions that count as AHP 0.1."""

from __future__ import annotations

import pytest

from sessions_app.ahp.versions.v0_1 import negotiation
from sessions_app.ahp.versions.v0_1.wire import errors


@pytest.mark.rule("R42")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["0.1.0"], "0.1.0"),
        (["0.1.7"], "0.1.7"),
        (["1.0.0", "0.2.0", "0.1.0"], "0.1.0"),
        (["0.1.3", "0.1.0"], "0.1.3"),
        (["0.1.0", "0.1.3"], "0.1.0"),
        (["0.1", "0.1.0-beta", "v0.1.0", "0.1.0+build", "00.1.0", "0.1.01", "", " 0.1.0", "0.1.0\n", "0.1.2"], "0.1.2"),
    ],
)
def test_the_first_version_that_the_host_speaks_is_chosen_as_offered(offered: list[str], chosen: str) -> None:
    assert negotiation.choose(offered) == chosen


@pytest.mark.rule("R42", "R44")
@pytest.mark.parametrize("offered", [[], ["0.2.0"], ["1.0.0"], ["0.0.1"], ["0.1"], ["0.1.x"], ["0.1.٣"]])
def test_no_version_is_chosen_if_none_is_in_range(offered: list[str]) -> None:
    assert negotiation.choose(offered) is None


@pytest.mark.rule("R33", "R44")
def test_the_error_for_unsupported_versions_lists_the_supported_ones() -> None:
    error = errors.unsupported_protocol_version(negotiation.SUPPORTED)
    assert error.code == -32005
    assert error.data == {"supportedVersions": ["0.1.0"]}
    assert errors.DATA[errors.Code.UNSUPPORTED_PROTOCOL_VERSION].faults(error.data) == []
