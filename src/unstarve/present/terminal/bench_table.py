"""A benchmark in the terminal: one table per part, 80 columns wide."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstarve.model import Benchmark, Checked, Kind, Part, Promise, Way
from unstarve.words import duration, percent, rate, size, times

_NOT_SLOWER = 0.95
"""Share of the rival's speed; below, the difference is more than noise."""
_STYLES = {Kind.STOCK: "default", Kind.OURS: "bold", Kind.PEER: "cyan", Kind.LIMIT: "bright_black"}


def print_part(part: Part, console: Console) -> None:
    """Print one part: a line for each way to load."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    title = part.name if part.letter == part.name else f"{part.letter} · {part.name}"
    console.print(Text(f"{title}: {part.title}", "bold"), soft_wrap=True)
    table.add_column("", width=32, overflow="fold")
    each = part.batch_samples
    table.add_column("per batch" if each is None else "samples/s", justify="right", width=14)
    table.add_column("speed-up", justify="right", width=8)
    table.add_column("memory" if each is None else "CPU", justify="right", width=7)
    table.add_column("target", width=15)
    for way in part.ways:
        if way.mean_s is not None:
            table.add_row(*_cells(way, way.mean_s, each))
    console.print(table)
    for way in part.ways:
        if way.over_rival is not None:
            console.print(
                Text(f"{way.name}, against {way.rival}: {_factor(way.over_rival)}", "bright_black"),
                soft_wrap=True,
            )
    for reason, names in _left_out(part.ways).items():
        console.print(Text(f"{reason}: {'; '.join(names)}", "bright_black"))
    console.print()


def print_summary(result: Benchmark, console: Console) -> None:
    """Print how many targets were met, and what the numbers mean."""
    checked = [
        one for part in result.parts for way in part.ways for one in way.checked if one.met is not None
    ]
    missed = [
        f"{part.name}, {way.name}: {_promise(one)}, measured {_measured(one)}"
        for part in result.parts
        for way in part.ways
        for one in way.checked
        if one.met is False
    ]
    rounds = len(result.seeds)
    seeds = f"{rounds} seeds" if len(set(result.seeds)) > 1 else f"{rounds} × seed {result.seeds[0]}"
    lines = [
        f"per batch: mean ± standard deviation over {seeds}; speed-up: median over rounds, against torch in "
        "the same round; memory: of training process and workers, without the data"
    ]
    if any(part.batch_samples for part in result.parts):
        lines.append("CPU: time per sample, training process and workers together")
    if checked:
        lines.append(f"{len(checked) - len(missed)} of {len(checked)} targets met")
    elif any(way.checked for part in result.parts for way in part.ways):
        lines.append("targets apply to the default sizes and were not checked")
    lines += [f"missed: {line}" for line in missed]
    lines += _against_rivals(result.parts)
    if result.interrupted:
        lines.append("interrupted: not everything was measured")
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _against_rivals(parts: tuple[Part, ...]) -> list[str]:
    """Say whether the same dataset is slower in our loader than in torch's."""
    compared = [(part, way) for part in parts for way in part.ways if way.over_rival is not None]
    slower = [
        f"slower: {part.name}, {way.name}: {_factor(way.over_rival)} as fast as {way.rival}"
        for part, way in compared
        if way.over_rival is not None and way.over_rival < _NOT_SLOWER
    ]
    if not compared:
        return []
    count = f"{len(compared) - len(slower)} of {len(compared)}"
    return [f"the same dataset in both loaders: {count} not slower in unstarve's", *slower]


def _left_out(ways: tuple[Way, ...]) -> dict[str, list[str]]:
    """Reason → names of the ways it kept from being measured."""
    reasons: dict[str, list[str]] = {}
    for way in ways:
        if way.missing is not None:
            reasons.setdefault(way.missing, []).append(way.name)
    return reasons


def _cells(way: Way, mean_s: float, batch_samples: int | None) -> tuple[Text, Text, Text, Text, Text]:
    engine = "" if way.engine in (None, "stock") else f"/{way.engine}"
    if batch_samples is None:
        speed, cost = (
            duration(mean_s, way.deviation_s),
            size(way.extra.besides_data_bytes) if way.extra else "",
        )
    else:
        speed = rate(batch_samples / mean_s)
        cost = "" if way.cpu_s is None else duration(way.cpu_s / batch_samples)
    return (
        Text(way.name, _STYLES[way.kind]) + Text(engine, "default"),
        Text(speed),
        Text("" if way.kind is Kind.STOCK or way.speedup is None else _factor(way.speedup)),
        Text(cost),
        _bars(way.checked),
    )


def _bars(checked: tuple[Checked, ...]) -> Text:
    lines = Text()
    for number, one in enumerate(checked):
        mark, style = {True: ("met", "green"), False: ("missed", "red"), None: ("", "")}[one.met]
        lines += Text("\n" if number else "") + Text(f"{_promise(one)} ") + Text(mark, style)
    return lines


def _promise(one: Checked) -> str:
    limit = one.bar.limit
    return {
        Promise.SPEEDUP: f"≥{limit:g}×",
        Promise.OVER_LIMIT: f"gap≤{percent(limit)}",
        Promise.EXTRA_BYTES: f"≤{size(limit)}",
        Promise.CACHED_SHARE: f"cache≤{percent(limit)}",
    }[one.bar.promise]


def _measured(one: Checked) -> str:
    value = one.measured or 0.0
    return {
        Promise.SPEEDUP: _factor(value),
        Promise.OVER_LIMIT: percent(value),
        Promise.EXTRA_BYTES: size(value),
        Promise.CACHED_SHARE: percent(value),
    }[one.bar.promise]


def _factor(value: float) -> str:
    """Measured, so a ratio above a hundred is meant."""
    return times(value, 2, most=math.inf)
