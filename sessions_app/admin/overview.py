"""The first page: whether the server is well, what waits for somebody, and figures over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from django.http import HttpRequest

from agents_app import installation
from sessions_app.accounts.people import account
from sessions_app.core import figures
from sessions_app.core.figures import Attention, Point, Range, Series, histograms
from sessions_app.core.records import live_workers, queues
from sessions_app.core.records.queues import QueueFigures
from sessions_app.core.tenancy import audit_sinks, rights, served_agents
from sessions_app.core.tenancy.audit_sinks import Standing
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import Tenant
from sessions_app.presentation import charts
from sessions_app.presentation.charts import Chart, Line

RANGES: dict[Range, str] = {"hour": "Last hour", "day": "Last day", "week": "Last week"}
_BUSIEST = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to "is it well?" in one line, with what to do."""

    tone: Literal["good", "warn", "bad"]
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class BusyRow:
    name: str
    turns: int
    errors: int

    @property
    def error_share(self) -> str:
        return f"{100 * self.errors / self.turns:.0f} %" if self.errors else "–"


@dataclass(frozen=True, slots=True)
class Overview:
    verdict: Verdict
    range: Range
    ranges: dict[Range, str]
    figures: Sequence[tuple[str, str]]
    charts: Sequence[Chart]
    attention: Attention
    tenants: Sequence[BusyRow]
    agents: Sequence[BusyRow]
    unsampled: bool
    """Whether the account would see samples of the server, and there are none."""
    queues: Sequence[QueueFigures]
    """Empty if there is only the default queue."""
    sinks: Sequence[Standing]


def overview(request: HttpRequest) -> Overview | None:
    """None: this account may not see the tenants, and so not their figures."""
    by = account(request)
    if not all(rights.as_staff(by, right) for right in (Right.SEE_TENANT, Right.SEE_SESSIONS, Right.SEE_USE)):
        return None
    tenants = by.staff_tenants
    wanted = request.GET.get("range", "")
    of = cast(Range, wanted) if wanted in get_args(Range) else "day"
    series, attention = figures.series(of, tenants), figures.attention(tenants)
    slugs = dict(
        Tenant.objects.values_list("pk", "slug").filter(
            pk__in=_names(busy := figures.busiest(of, "tenant_id", _BUSIEST, tenants))
        )
    )
    sees_server = rights.as_staff(by, Right.SEE_SERVER)
    sinks = audit_sinks.standings() if sees_server else []
    return Overview(
        verdict=verdict(series, attention, sinks),
        range=of,
        ranges=RANGES,
        figures=[*_headline(series, attention), *(_webs() if sees_server else [])],
        charts=_charts(series, of),
        attention=attention,
        tenants=[BusyRow(slugs.get(int(row.name), f"#{row.name}"), row.turns, row.errors) for row in busy],
        agents=[BusyRow(str(row.name), row.turns, row.errors) for row in figures.busiest(of, "agent", _BUSIEST, tenants)],
        unsampled=tenants is None and not series.sampled,
        queues=_queues() if sees_server else [],
        sinks=sinks,
    )


def _queues() -> list[QueueFigures]:
    found = queues.figures(live_workers.database_clock())
    return found if len(found) > 1 else []


def _names(rows: Sequence[figures.Busy]) -> list[int]:
    return [int(row.name) for row in rows]


def verdict(series: Series, attention: Attention, sinks: Sequence[Standing] = ()) -> Verdict:
    if attention.workers == 0:
        return Verdict(
            "bad",
            "No worker is alive: turns are accepted and wait.",
            f"Start a worker ({installation.role('worker')}), and look at its log; "
            f"{installation.manage('doctor')} finds other reasons.",
        )
    newest = next((point for point in reversed(series.points) if point.samples), None)
    if newest is not None and newest.mean("redis") == 0:
        return Verdict(
            "bad", "Redis does not answer: streams are slower, and limits are counted per process.", "Start Redis again."
        )
    if waiting := [queue.name for queue in attention.unserved if queue.stuck]:
        return Verdict(
            "bad",
            f"No worker serves {', '.join(waiting)}: turns of {'this queue' if len(waiting) == 1 else 'these queues'} wait.",
            f"Start one: {installation.role('worker --queues ' + ','.join(waiting))}",
        )
    if attention.stuck:
        return Verdict(
            "warn",
            f"{attention.stuck} turns are queued for longer than 5 seconds.",
            "Workers are busy: start more of them, or look at what runs now.",
        )
    ended, failed = series.total.turns, series.total.errors
    if ended >= 10 and failed / ended >= 0.1:
        return Verdict("warn", f"{100 * failed / ended:.0f} % of the turns failed.", "The agents that fail are listed below.")
    for sink in sinks:
        if not sink.is_well:
            return Verdict("warn", f"The audit does not reach the {sink.name}.", sink.advice)
    return Verdict("good", "The server is well." if attention.nothing else "The server is well; something waits for somebody.")


def _headline(series: Series, attention: Attention) -> list[tuple[str, str]]:
    def time_of(value: float | None) -> str:
        return "–" if value is None else charts.seconds(value)

    return [
        ("running now", charts.count(attention.running)),
        ("queued now", charts.count(attention.queued)),
        ("turns", charts.count(series.total.turns)),
        ("errors", charts.count(series.total.errors)),
        ("first output, median", time_of(series.first_output(0.5))),
        ("first output, 95 %", time_of(series.first_output(0.95))),
        ("tokens", charts.count(series.use.input_tokens + series.use.output_tokens)),
        ("cost", charts.money(series.use.cost_nano)),
        ("workers", charts.count(attention.workers)),
    ]


def _webs() -> list[tuple[str, str]]:
    webs = served_agents.webs_alive()
    return [("webs", charts.count(webs.number)), ("open streams", charts.count(webs.streams))]


def _charts(series: Series, of: Range) -> list[Chart]:
    form = {"hour": "%H:%M", "day": "%H:%M", "week": "%a %d, %H:%M"}[of]
    times = [f"{point.at:{form}}" for point in series.points]
    points, total = series.points, series.total

    def outcomes(*names: str) -> list[float | None]:
        return [float(sum(point.turns.outcomes[name] for name in names)) for point in points]

    def gauge(name: str) -> list[float | None]:
        return [point.greatest(name) for point in points]

    causes = [name for name, _ in total.causes.most_common(3)]
    tones: tuple[Literal["bad", "warn", "second"], ...] = ("bad", "warn", "second")
    others = [float(point.turns.errors - sum(point.turns.causes[name] for name in causes)) for point in points]
    found = [
        Chart(
            "turns",
            "Turns that ended",
            charts.count(total.turns),
            times,
            [
                Line("done", "main", outcomes("done", "max_tokens", "refusal")),
                Line("cancelled", "quiet", outcomes("cancelled")),
                Line("error", "bad", outcomes("error")),
            ],
            charts.count,
            bars=True,
        ),
        Chart(
            "errors",
            "Errors by cause",
            charts.count(total.errors),
            times,
            [
                *(
                    Line(name.replace("_", " "), tone, [float(point.turns.causes[name]) for point in points])
                    for name, tone in zip(causes, tones, strict=False)
                ),
                Line("others", "quiet", others),
            ],
            charts.count,
            bars=True,
        ),
        Chart(
            "first-output",
            "Time to the first output",
            "" if (value := series.first_output(0.5)) is None else f"median {charts.seconds(value)}",
            times,
            _percentiles(points, "first"),
            charts.seconds,
        ),
        Chart(
            "duration",
            "Duration of turns",
            "" if (value := series.duration(0.5)) is None else f"median {charts.seconds(value)}",
            times,
            _percentiles(points, "took"),
            charts.seconds,
        ),
        Chart(
            "tokens",
            "Tokens",
            charts.count(series.use.input_tokens + series.use.output_tokens),
            times,
            [
                Line("input", "main", [float(point.use.input_tokens) for point in points]),
                Line("output", "second", [float(point.use.output_tokens) for point in points]),
            ],
            charts.count,
            bars=True,
        ),
        Chart(
            "cost",
            "Cost, in the unit of the price list",
            charts.money(series.use.cost_nano),
            times,
            [Line("cost", "main", [float(point.use.cost_nano) for point in points])],
            charts.money,
            bars=True,
        ),
    ]
    if series.sampled:
        found += [
            Chart(
                "queue",
                "Turns in work, greatest sample",
                "",
                times,
                [
                    Line("running", "main", gauge("running")),
                    Line("queued", "warn", gauge("queued")),
                    Line("waiting for clients", "quiet", gauge("waiting")),
                ],
                charts.count,
            ),
            Chart("wait", "Longest wait in the queue", "", times, [Line("wait", "warn", gauge("queue_wait"))], charts.seconds),
            Chart(
                "workers",
                "Workers and webs alive",
                "",
                times,
                [
                    Line("workers", "good", [point.mean("workers") for point in points]),
                    Line("webs", "second", [point.mean("webs") for point in points]),
                ],
                charts.count,
            ),
            Chart(
                "streams",
                "Open streams and connections of clients, greatest sample",
                "",
                times,
                [Line("streams", "main", gauge("streams"))],
                charts.count,
            ),
            Chart("database", "Answer of the database and Redis", "", times, _answers(points), charts.seconds),
        ]
    return found


def _percentiles(points: Sequence[Point], which: Literal["first", "took"]) -> list[Line]:
    def values(share: float) -> list[float | None]:
        return [histograms.percentile(getattr(point.turns, which), share) for point in points]

    return [Line("median", "main", values(0.5)), Line("95 %", "warn", values(0.95))]


def _answers(points: Sequence[Point]) -> list[Line]:
    found = [Line("database", "main", [point.greatest("database_seconds") for point in points])]
    if any("redis" in point.samples for point in points):
        found.append(Line("Redis", "second", [point.greatest("redis_seconds") for point in points]))
    return found
