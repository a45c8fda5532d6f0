"""Rows about streams, at the scripted model server in place of a server of ours."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.benchmark.against import PeerServer
from ops.benchmark.installation import model_server
from ops.benchmark.load import LoadError, floor
from ops.benchmark.rows import ROWS
from ops.benchmark.setting import Bench, Size, models, warm_up

SMALL = Size(single_turns=2, steady_turns=1, short_turns=1, paced_seconds=0.2)


def bench(home: Path, port: int, *, with_floor: bool = True) -> Bench:
    return Bench(SMALL, home, PeerServer(floor(port), []), port if with_floor else 0, ExitStack(), print)


@pytest.mark.parametrize("name", ["first-delta", "streams-50", "many-starts", "part-load", "burst"])
@pytest.mark.parametrize("with_floor", [True, False])
async def test_a_row_has_figures_of_any_server(name: str, with_floor: bool, tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    with model_server() as port:
        there = bench(tmp_path, port, with_floor=with_floor)
        await warm_up(there)
        figures = await row.measure(there)
    assert figures
    assert len({figure.label for figure in figures}) == len(figures)
    assert all(figure.ours > 0 or figure.label == "added to it" for figure in figures)
    assert any(figure.floor is not None for figure in figures) is with_floor


async def test_a_server_that_does_not_answer_has_no_figures(tmp_path: Path) -> None:
    with model_server() as port:
        pass
    with pytest.raises(LoadError, match="no connection"):
        await warm_up(bench(tmp_path, port))


def test_the_names_of_all_loads_models_are_known() -> None:
    assert len(models(SMALL)) == len(set(models(SMALL)))
    assert len({row.name for row in ROWS}) == len(ROWS)
