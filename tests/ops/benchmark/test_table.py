"""Lines of the benchmark's tables."""

from __future__ import annotations

from ops.benchmark import table
from ops.benchmark.figures import Figure, collect, pairs


def test_a_line_of_the_table_says_median_spread_ratio_and_verdict() -> None:
    runs = [[Figure("TTFT", "ms", ours, floor, at_most=33)] for ours, floor in ((30.0, 20.0), (36.0, 20.0), (31.0, 25.0))]
    assert table.rows(collect(runs)) == ["| TTFT | ms | 20.0 | 31.0 (30.0–36.0) | 1.50 | <= 33 | yes |"]


def test_a_line_of_a_comparison_has_both_checkouts_and_the_spread_of_the_ratio() -> None:
    mine = [[Figure("created", "a second", value, beside_at_least=6, decimals=0)] for value in (1200.0, 1000.0)]
    its = [[Figure("created", "a second", value, decimals=0)] for value in (200.0, 250.0)]
    assert table.pair_rows(pairs(mine, its)) == [
        "| created | a second | – | 225 (200–250) | 1,100 (1,000–1,200) | 5.00 (4.00–6.00) | >= 6 of it | **no** |"
    ]


def test_headings_have_as_many_cells_as_lines() -> None:
    runs = [[Figure("x", "ms", 1.0)]]
    for heading, rows in (
        (table.heading(), table.rows(collect(runs))),
        (table.pair_heading(), table.pair_rows(pairs(runs, runs))),
    ):
        assert len({line.count("|") for line in (*heading, *rows)}) == 1
