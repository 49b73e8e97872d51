"""Results in a notebook: HTML for Jupyter, the terminal's text for the IPython prompt."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from pathlib import PurePath
from typing import Any

from rich.console import Console

from unstarve.model import (
    Advice,
    Comparison,
    Diagnosis,
    LoaderDiagnosis,
    Row,
    State,
    Tried,
    WhatIf,
    WorkerSearch,
)
from unstarve.present.gain_text import gain_text
from unstarve.present.own_cost import own_cost
from unstarve.present.page import html_fragments as html
from unstarve.present.shares import budget_title
from unstarve.present.terminal.report_card import print_comparison, print_report
from unstarve.present.terminal.tried_settings import (
    called,
    in_order,
    print_loader_diagnosis,
    print_search,
    value_of,
)
from unstarve.present.terminal.whatif_table import headline as whatif_headline
from unstarve.present.terminal.whatif_table import print_whatif
from unstarve.words import duration, percent, rate, times, times_interval

_COLOURS = {
    State.STARVED: html.RED,
    State.TIGHT: html.YELLOW,
    State.FED: html.GREEN,
    State.INCONCLUSIVE: html.BLUE,
}
_SMALLEST_SHARE = 0.005
_MOST_ADVICE = 3
_MOST_REJECTED = 4
_WIDTH = 80


@singledispatch
def html_of(result: Any) -> str:
    """A result as self-contained HTML without script; names from the data are escaped."""
    raise TypeError(f"no HTML view for {type(result).__name__}")


@singledispatch
def text_of(result: Any) -> str:
    """A result as the command line prints it, without colour."""
    raise TypeError(f"no text view for {type(result).__name__}")


@html_of.register
def _(result: Diagnosis) -> str:
    return html.box(_diagnosis(result))


@html_of.register
def _(result: Comparison) -> str:
    return html.box(_comparison(result))


@html_of.register
def _(result: WhatIf) -> str:
    return html.box(_whatif(result))


@html_of.register
def _(result: WorkerSearch) -> str:
    return html.box(_search(result))


@html_of.register
def _(result: LoaderDiagnosis) -> str:
    return html.box(_loader(result))


@text_of.register
def _(result: WorkerSearch) -> str:
    return printed(lambda console: print_search(result, console))


@text_of.register
def _(result: LoaderDiagnosis) -> str:
    return printed(lambda console: print_loader_diagnosis(result, console))


@text_of.register
def _(result: Diagnosis) -> str:
    return printed(lambda console: print_report(result, console))


@text_of.register
def _(result: Comparison) -> str:
    return printed(lambda console: print_comparison(result, console))


@text_of.register
def _(result: WhatIf) -> str:
    return printed(lambda console: print_whatif(result, console))


def printed(show: Callable[[Console], None]) -> str:
    """What `show` prints on a console of 80 columns."""
    target = io.StringIO()
    show(Console(file=target, width=_WIDTH, color_system=None, force_terminal=False, force_jupyter=False))
    return "\n".join(line.rstrip() for line in target.getvalue().rstrip().split("\n"))


def _diagnosis(d: Diagnosis) -> Iterator[str]:
    yield html.headline(d.verdict.headline, d.verdict.state.upper(), _COLOURS[d.verdict.state])
    yield html.lines(d.verdict.evidence)
    budget = [s for s in d.budget if s.share >= _SMALLEST_SHARE]
    if budget:
        yield html.title(budget_title(d))
        yield html.bars(
            ((s.cause, s.share, f"{percent(s.share)}  {duration(s.seconds)}") for s in budget),
            _COLOURS[d.verdict.state],
        )
    if d.outside:
        outside = ", ".join(f"{part.what} {duration(part.seconds)}" for part in d.outside)
        yield html.small(f"outside the measured steps: {outside}")
    for number, advice in enumerate(d.advice[:_MOST_ADVICE], start=1):
        yield from _advice(number, advice)
    for loader in d.loaders:
        if loader.verdict is not None:
            yield html.title(loader.verdict.headline)
            yield html.lines(loader.verdict.evidence)
            for number, advice in enumerate(loader.advice[:_MOST_ADVICE], start=1):
                yield from _advice(number, advice)
    if d.rejected:
        yield html.title("considered, but not advised")
        yield html.lines(f"{one.what}: {one.why}" for one in d.rejected[:_MOST_REJECTED])
    yield from (html.small(f"⚠ {message}") for message in d.lost)
    facts = [duration(d.wall_s), f"{d.steps} steps ({d.warmup_steps} warm-up)", d.device]
    if d.throughput.samples_per_s is not None:
        facts.append(f"{rate(d.throughput.samples_per_s)} samples/s")
    if (cost := own_cost(d.overhead)) is not None:
        facts.append(cost)
    yield html.small(" · ".join(facts))


def _advice(number: int, advice: Advice) -> Iterator[str]:
    told = "" if advice.speedup is None else f" — {gain_text(advice.speedup)}"
    yield html.title(f"{number}. {advice.title}{told}")
    yield html.sentence(f"{advice.why[:1].upper()}{advice.why[1:]}. {advice.note}".strip())
    if advice.code:
        yield html.code(advice.code)
    if advice.command:
        yield html.sentence("Or, without changing your code:")
        yield html.code(advice.command)


def _faster_still(advice: Sequence[Advice]) -> Iterator[str]:
    if advice:
        yield html.title("to load faster still")
    for number, one in enumerate(advice[:_MOST_ADVICE], start=1):
        yield from _advice(number, one)


def _comparison(result: Comparison) -> Iterator[str]:
    badge, colour = None, html.BLUE
    if result.change is not None and result.change.shown:
        better = result.change.ratio >= 1
        badge, colour = times(result.change.ratio, 2), html.GREEN if better else html.RED
    yield html.headline(result.headline, badge, colour)
    head = ("", f"A  {PurePath(result.a.path).name}", f"B  {PurePath(result.b.path).name}")
    states = ("state", result.a.verdict.state, result.b.verdict.state)
    yield html.table(head, [states, *(_row(row) for row in result.rows)])
    yield html.lines(result.notes)
    yield html.lines(
        f"{'✗' if gate.failed else '✓'} {gate.expression}: {gate.reason}" for gate in result.gates
    )


def _row(row: Row) -> tuple[str, str, str]:
    def shown(value: float | None) -> str:
        if value is None:
            return "–"
        if row.unit == "ms":
            return duration(value / 1e3)
        return percent(value) if row.unit == "%" else f"{rate(value)} {row.unit}"

    return row.label, shown(row.a), shown(row.b)


def _whatif(result: WhatIf) -> Iterator[str]:
    yield html.headline(whatif_headline(result))
    rows, chosen = [], []
    for number, one in enumerate(result.curve):
        marks = {"recorded": one.recorded, "best": one.best, "enough": one.enough}
        per_s = one.steps_per_s if one.samples_per_s is None else one.samples_per_s
        setting = one.setting
        rows.append(
            (
                str(setting.workers),
                "–" if setting.prefetch is None else str(setting.prefetch),
                "–" if setting.batch_size is None else str(setting.batch_size),
                rate(per_s),
                percent(one.wait_share),
                times_interval(one.speedup, one.speedup_low, one.speedup_high, 2),
                ", ".join(name for name, holds in marks.items() if holds),
            )
        )
        if one.enough:
            chosen.append(number)
    unit = "steps/s" if any(one.samples_per_s is None for one in result.curve) else "samples/s"
    head = ("workers", "prefetch", "batch", unit, "waits", "speed-up", "")
    yield html.table(head, rows, bold=chosen)
    yield from (html.small(note) for note in result.notes)


def _search(result: WorkerSearch) -> Iterator[str]:
    yield html.headline(result.headline)
    yield _rates(result.tried, "workers", chosen=result.num_workers)
    yield html.code(result.code)
    yield from (html.small(note) for note in result.notes)
    yield from _faster_still(result.advice)


def _loader(result: LoaderDiagnosis) -> Iterator[str]:
    yield html.headline(result.headline)
    yield html.lines(result.findings)
    yield html.title("workers")
    yield _rates(result.workers.tried, "workers", chosen=result.workers.num_workers)
    for name, tried in (("batch size", result.batch_sizes), ("prefetch", result.prefetch)):
        if len(tried) > 1:
            yield html.title(name)
            yield _rates(in_order(tried), name)
    if result.functions:
        yield html.title("functions of a sample")
        yield html.bars((called(one), one.share, percent(one.share)) for one in result.functions)
    yield html.title("recommended")
    yield html.code(result.code)
    yield from (html.small(note) for note in result.notes)
    yield from _faster_still(result.advice)


def _rates(tried: Sequence[Tried], name: str, chosen: int | None = None) -> str:
    best = max(one.rate for one in tried)
    rows = []
    for one in tried:
        value = value_of(one, name)
        mark = " — recommended" if chosen is not None and value == chosen else ""
        rows.append((str(value), one.rate / best, f"{rate(one.rate)} samples/s{mark}"))
    return html.bars(rows)
