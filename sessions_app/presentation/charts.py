"""Charts as SVG, drawn on the server. Pure: no script, no inline style, and the same figures as a table.

Colours come from classes (presentation.css). A chart stretches to its column; its texts are HTML beside it, so that they stay
readable at any width. Each stretch of time has a title, which browsers show when it is pointed at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

Tone = Literal["main", "second", "good", "warn", "bad", "quiet"]
_WIDTH, _HEIGHT = 600.0, 120.0


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity over time; None: no value at that point. ``tone``: its colour, a class of presentation.css."""

    title: str
    tone: Tone
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """``bars``: quantities stacked on each other; otherwise lines. ``now``: the figure beside the title."""

    name: str
    title: str
    now: str
    times: Sequence[str]
    lines: Sequence[Line]
    shown: Callable[[float], str]
    bars: bool = False
    table: bool = True

    @property
    def top(self) -> float:
        if self.bars:
            columns = zip(*(line.values for line in self.lines), strict=True)
            highest = max((sum(value or 0 for value in column) for column in columns), default=0)
        else:
            highest = max((value or 0 for line in self.lines for value in line.values), default=0)
        return _rounded_up(highest)

    @property
    def is_empty(self) -> bool:
        return not any(value for line in self.lines for value in line.values)

    @property
    def top_text(self) -> str:
        return self.shown(self.top)

    @property
    def summary(self) -> str:
        """The chart in one sentence, for screen readers."""
        parts = []
        for line in self.lines:
            known = [value for value in line.values if value is not None]
            if known:
                parts.append(f"{line.title}: at most {self.shown(max(known))}, last {self.shown(known[-1])}")
        return f"{self.title}, {self.times[0]} to {self.times[-1]}. " + ("; ".join(parts) or "No figures") + "."

    def rows(self) -> list[tuple[str, list[str]]]:
        """The table: each time with its values, without the times that have none."""
        return [
            (time, ["–" if line.values[index] is None else self.shown(line.values[index] or 0) for line in self.lines])
            for index, time in enumerate(self.times)
            if any(line.values[index] for line in self.lines)
        ]

    def svg(self) -> SafeString:
        marks = self._bars() if self.bars else self._lines()
        step = _WIDTH / len(self.times)
        hovers = format_html_join(
            "",
            '<rect class="ah-hover" x="{}" y="0" width="{}" height="{}"><title>{}</title></rect>',
            ((_short(index * step), _short(step), _HEIGHT, self._hover(index)) for index in range(len(self.times))),
        )
        return format_html(
            '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
            '<path class="ah-grid" d="M0 {}H{}M0 {}H{}"/>{}{}</svg>',
            int(_WIDTH),
            int(_HEIGHT),
            self.summary,
            _short(_HEIGHT / 2),
            int(_WIDTH),
            _short(_HEIGHT - 0.5),
            int(_WIDTH),
            marks,
            hovers,
        )

    def _hover(self, index: int) -> str:
        texts = [f"{line.title}: {self.shown(value)}" for line in self.lines if (value := line.values[index]) is not None]
        return f"{self.times[index]} UTC\n" + ("\n".join(texts) or "no figures")

    def _bars(self) -> SafeString:
        step, top, drawn = _WIDTH / len(self.times), self.top, []
        for index in range(len(self.times)):
            base = _HEIGHT
            for line in self.lines:
                height = (line.values[index] or 0) / top * (_HEIGHT - 4)
                if height > 0:
                    base -= height
                    drawn.append(
                        (
                            f"ah-fill-{line.tone}",
                            _short(index * step + step * 0.1),
                            _short(base),
                            _short(step * 0.8),
                            _short(height),
                        )
                    )
        return format_html_join("", '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>', drawn)

    def _lines(self) -> SafeString:
        step, top, drawn = _WIDTH / len(self.times), self.top, []
        for line in self.lines:
            path, pen_is_down = [], False
            for index, value in enumerate(line.values):
                if value is None:
                    pen_is_down = False
                    continue
                x, y = _short((index + 0.5) * step), _short(_HEIGHT - value / top * (_HEIGHT - 4))
                # A value between two gaps is a short stroke; a move alone would not be drawn.
                path.append(f"L{x} {y}" if pen_is_down else f"M{_short(float(x) - step / 4)} {y}L{x} {y}")
                pen_is_down = True
            drawn.append((f"ah-line-{line.tone}", "".join(path)))
        return format_html_join("", '<path class="ah-stroke {}" d="{}"/>', drawn)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _rounded_up(highest: float) -> float:
    """A round number that is at least this, for the upper end of the scale."""
    if highest <= 0:
        return 1.0
    unit = 1.0
    while unit > highest:
        unit /= 10
    while unit * 10 <= highest:
        unit *= 10
    return next(unit * factor for factor in (1, 1.5, 2, 3, 5, 10) if unit * factor >= highest)


# --- numbers -------------------------------------------------------------------------------------


def count(value: float) -> str:
    if value >= 999_500:
        return f"{value / 1_000_000:.3g} M"
    if value >= 9_995:
        return f"{value / 1000:.3g} k"
    return f"{value:,.0f}" if value == int(value) else f"{value:.1f}"


def seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def money(nano: float) -> str:
    value = nano / 10**9
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.4f}"


def exact(value: float) -> str:
    return f"{value:,.0f}"


def byte_count(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} bytes"
