"""The report of a run and of a comparison: the verdict first, then the numbers and the advice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unstarve.model import Advice, Comparison, Diagnosis, GpuSummary, LoaderSummary, Role, Row, Spread, State
from unstarve.present.gain_text import gain_text
from unstarve.present.own_cost import own_cost
from unstarve.present.shares import budget_title, shares
from unstarve.present.terminal.copy_table import copy_table
from unstarve.present.terminal.finding_list import finding_list
from unstarve.present.terminal.lanes import lanes
from unstarve.present.terminal.memory_line import memory_lines
from unstarve.present.terminal.path_text import PathText
from unstarve.present.terminal.processor_table import processor_table
from unstarve.present.terminal.profile_tables import operator_changes, profile_tables
from unstarve.present.terminal.reading_tables import reading_tables
from unstarve.present.terminal.screen import for_screen
from unstarve.words import duration, percent, points, rate, size, times, times_interval

COLOURS = {State.STARVED: "red", State.TIGHT: "yellow", State.FED: "green", State.INCONCLUSIVE: "cyan"}
_BAR_WIDTH = 24
_SHORTEST_BAR = 6
_BESIDE_BAR = 34
"""Columns taken by a cause's name and numbers."""
_COLUMNS = ("workers", "batch", "epochs", "steps", "wait p50", "p95", "start")
_NARROW_COLUMNS = ("workers", "wait p50")
_WIDE = 78
"""Width from which all columns of the loader table fit."""
_MOST_LOADERS = 8
_SMALLEST_SHARE = 0.001
"""Smaller shares are only in the JSON."""
_MOST_SLOW = 3
_MOST_ADVICE = 3
_MOST_REJECTED = 4
"""The rest is only in the JSON."""


def print_report(diagnosis: Diagnosis, console: Console) -> None:
    """Print the report of one run."""
    diagnosis = for_screen(diagnosis)
    console.print(_card(diagnosis))
    numbers, budget = _numbers(diagnosis), _budget(diagnosis, console.width)
    drawn, loaders = (
        lanes(diagnosis.typical, console.width),
        _loaders(diagnosis.loaders, console.width),
    )
    validation = _validation(diagnosis)
    for part in (
        numbers,
        budget,
        _outside(diagnosis),
        drawn,
        loaders,
        copy_table(diagnosis.copies),
        profile_tables(diagnosis.profile),
        reading_tables(diagnosis.io),
        processor_table(diagnosis.perf),
        _walk(diagnosis),
        _slow_samples(diagnosis),
        finding_list(diagnosis.health),
        _advice(diagnosis),
        _rejected(diagnosis),
        validation,
    ):
        if part is not None:
            console.print(Padding(part, (0, 1)))
    if diagnosis.advice or diagnosis.rejected or validation is not None:
        console.print()
    for loader in diagnosis.loaders:
        if "applied" in loader.config:
            applied = f"settings applied to {loader.name} ({loader.where}): {loader.config['applied']}"
            console.print(PathText(Text("✓ ", "green") + Text(applied, "default")))
    for message in diagnosis.lost:
        console.print(PathText(Text("! ", "yellow") + Text(message, "default")))
    console.print(_footer(diagnosis))
    if (cost := own_cost(diagnosis.overhead)) is not None:
        console.print(Text(cost, "bright_black"))


def print_comparison(result: Comparison, console: Console) -> None:
    """Print two runs side by side, then the gates."""
    result = for_screen(result)
    colour = "cyan"
    if result.change is not None and result.change.shown:
        colour = "green" if result.change.ratio >= 1 else "red"
    console.print(Panel(Text(result.headline, "bold"), border_style=colour, box=box.ROUNDED))
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    for side, one in (("A", result.a), ("B", result.b)):
        table.add_column(Text(f"{side}  {PurePath(one.path).name}"), justify="right", overflow="fold")
    table.add_column("B against A", justify="right")
    table.add_row("state", _state(result.a), _state(result.b), "")
    for row in result.rows:
        table.add_row(*_comparison_cells(row))
    console.print(Padding(table, (0, 1)))
    for note in result.notes:
        console.print(Text("· ", "bright_black") + Text(note, "default"))
    changed = operator_changes(result.operators)
    if changed is not None:
        console.print(Padding(changed, (0, 1)))
    for gate in result.gates:
        mark = Text("✗ ", "red") if gate.failed else Text("✓ ", "green")
        console.print(mark + Text(f"{gate.expression}: {gate.reason}", "default"))


def _card(d: Diagnosis) -> Panel:
    title = Text(f" {d.verdict.state.upper()} ", f"bold reverse {COLOURS[d.verdict.state]}")
    lines: list[RenderableType] = [PathText(Text(d.verdict.headline, "bold"))]
    lines += [PathText(Text(f"· {line}")) for line in d.verdict.evidence]
    return Panel(Group(*lines), title=title, title_align="left", box=box.ROUNDED,
                 border_style=COLOURS[d.verdict.state], padding=(0, 1))  # fmt: skip


def _engines(gpu: GpuSummary) -> str:
    """What the driver says beside kernels and memory; empty if it says nothing."""
    known = [
        f"{gpu.power_w:.0f} W" if gpu.power_w is not None else "",
        f"receives {size(gpu.received_bytes_per_s)}/s" if gpu.received_bytes_per_s is not None else "",
        f"JPEG engines busy {percent(gpu.jpeg_engine_share)}" if gpu.jpeg_engine_share else "",
    ]
    return ", ".join(one for one in known if one)


def _numbers(d: Diagnosis) -> Table | None:
    if not d.steps:
        return None
    table = Table.grid(padding=(0, 2))
    for label, share in shares(d):
        table.add_row(label, "unknown" if share is None else f"{percent(share)} of the time")
    if d.headroom is not None:
        waits = "waits" if d.gpu is None or d.stall_share is None else "the GPU's stalls"
        how = "measured by replay" if d.headroom.method == "replay" else f"estimated from {waits}"
        h = d.headroom
        table.add_row("if loading were free", f"{times_interval(h.speedup, h.low, h.high, 2)}, {how}")
    if d.throughput.steps_per_s is not None:
        samples = d.throughput.samples_per_s
        per_s = f"{rate(d.throughput.steps_per_s)} steps/s"
        table.add_row("throughput", per_s + (f", {rate(samples)} samples/s" if samples is not None else ""))
    if d.gpu is not None and d.gpu.reserved_peak_bytes:
        held = f"at most {size(d.gpu.allocated_peak_bytes or 0)} of tensors"
        table.add_row("GPU memory", f"{held}, {size(d.gpu.reserved_peak_bytes)} reserved by torch")
    if d.gpu is not None and (drawn := _engines(d.gpu)):
        table.add_row("GPU load", drawn)
    for label, spread in (("step + wait", d.step_ms), ("wait", d.wait_ms)):
        if spread is not None:
            table.add_row(label, _spread(spread))
    for label, text in memory_lines(d.memory):
        table.add_row(label, text)
    return table


def _budget(d: Diagnosis, width: int) -> Group | None:
    if not d.budget:
        return None
    table = Table.grid(padding=(0, 2))
    longest = max(_SHORTEST_BAR, min(_BAR_WIDTH, width - _BESIDE_BAR))
    for share in d.budget:
        if share.share < _SMALLEST_SHARE:
            continue
        filled = round(share.share * longest)
        bar = Text("█" * filled, "blue") + Text("░" * (longest - filled), "bright_black")
        table.add_row(share.cause, bar, Text(percent(share.share), justify="right"), duration(share.seconds))
    return Group(Text(f"\n{budget_title(d)}", "bold"), table)


def _outside(d: Diagnosis) -> Group | None:
    shown = [part for part in d.outside if part.seconds >= _SMALLEST_SHARE * d.wall_s]
    if not shown:
        return None
    table = Table.grid(padding=(0, 2))
    for part in shown:
        table.add_row(Text(part.what), duration(part.seconds))
    return Group(Text("\noutside the measured steps", "bold"), table)


def _loaders(loaders: tuple[LoaderSummary, ...], width: int) -> Table | None:
    if not loaders:
        return None
    shared = Counter(loader.where for loader in loaders)
    shown_columns = _COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("loader", overflow="fold", min_width=14)
    for name in shown_columns:
        table.add_column(name, justify="right", no_wrap=True)
    for loader in loaders[:_MOST_LOADERS]:
        mark = " (nested)" if loader.nested else " (background)" if loader.background else ""
        engine = loader.config.get("engine")
        where = loader.where if engine is None else f"{loader.where}, engine {engine}"
        where += ", validation" if loader.role is Role.VALIDATION else ""
        if shared[loader.where] > 1 and loader.dataset_name is not None:
            where += f"\n{loader.dataset_name}"
        shown = PathText(Text(loader.name + mark) + Text(f"\n{where}", "bright_black"))
        p50, p95 = (
            ("–", "–") if loader.wait_ms is None else (_ms(loader.wait_ms.p50), _ms(loader.wait_ms.p95))
        )
        workers, batch = (str(loader.config.get(key, "–")) for key in ("num_workers", "batch_size"))
        start = duration(loader.startup_s)
        cells = (workers, batch, str(loader.epochs), str(loader.steps), p50, p95, start)
        told = dict(zip(_COLUMNS, map(Text, cells), strict=True))
        table.add_row(shown, *(told[name] for name in shown_columns))
    if len(loaders) > _MOST_LOADERS:
        table.add_row(Text(f"and {len(loaders) - _MOST_LOADERS} more: see --json", "bright_black"))
    return table


def _walk(d: Diagnosis) -> Group | None:
    """Questions and answers, one per line; the last one leads to the advice."""
    if not d.walk:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in d.walk:
        question, answer = [*re.split(r"(?<=\?)\s+", line, maxsplit=1), ""][:2]
        table.add_row(Text(question), PathText(Text(answer)))
    if d.advice:
        table.add_row("What to change?", Text(d.advice[0].title, "bold"))
    return Group(Text("\nstep by step", "bold"), table)


def _slow_samples(d: Diagnosis) -> Group | None:
    """The slowest samples, by file where that is known."""
    if not d.slow_samples:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for sample in d.slow_samples[:_MOST_SLOW]:
        named = f"sample {sample.index}" + ("" if sample.file is None else f"  {sample.file}")
        table.add_row(Text(named), _ms(sample.ms))
    return Group(Text("\nslowest samples", "bold"), table)


def _advice(d: Diagnosis) -> Group | None:
    table = advice_list(d.advice)
    return None if table is None else Group(Text("\nadvice", "bold"), table)


def _validation(d: Diagnosis) -> Group | None:
    """The evidence and the advice for validation loops that take a good part of the run."""
    parts: list[RenderableType] = []
    for loader in d.loaders:
        if loader.verdict is not None:
            parts.append(Text(f"\nvalidation with {loader.name}", "bold"))
            if loader.verdict.headline not in d.verdict.headline:
                parts.append(Text(loader.verdict.headline))
            parts += [Text(f"· {line}") for line in loader.verdict.evidence]
            table = advice_list(loader.advice)
            if table is not None:
                parts.append(table)
    return Group(*parts) if parts else None


def advice_list(advice: Sequence[Advice]) -> Table | None:
    """The best advice, each with its gain, reason and code; None when there is none."""
    if not advice:
        return None
    table = Table.grid(padding=(0, 1))
    for number, one in enumerate(advice[:_MOST_ADVICE], start=1):
        table.add_row(f"{number}.", _piece(one))
    return table


def _rejected(d: Diagnosis) -> Text | None:
    """What was considered and is not advised, in one line each."""
    if not d.rejected:
        return None
    return Text("\n").join(
        [
            Text("\nconsidered, but not advised", "bold"),
            *(Text(f"{r.what}: {r.why}") for r in d.rejected[:_MOST_REJECTED]),
        ]
    )


def _piece(one: Advice) -> Group:
    lines: list[RenderableType] = [Text(one.title, "bold")]
    if one.speedup is not None:
        lines.append(Text(gain_text(one.speedup), "yellow" if one.speedup.may_be_loss else "green"))
    lines.append(PathText(Text(one.why[:1].upper() + one.why[1:] + ".")))
    if one.note:
        lines.append(Text(one.note, overflow="fold"))
    if one.code:
        lines.append(Padding(Text(one.code, "cyan", overflow="fold"), (0, 0, 0, 2)))
    if one.command:
        lines.append(Text(f"{'or, ' if one.code else ''}without changing your code:"))
        lines.append(Padding(Text(one.command, "cyan", overflow="fold"), (0, 0, 0, 2)))
    return Group(*lines)


def _footer(d: Diagnosis) -> Text:
    status = "still recording" if d.live else "cut short" if d.cut_short else f"exit code {d.exit_code}"
    if d.kind == "import":
        status = "imported"
    lasted = f"{duration(d.wall_s)}, " if d.wall_s else ""  # not known without a batch
    parts = [
        f"{lasted}{d.steps} steps ({d.warmup_steps} warm-up)",
        d.device if d.ranks <= 1 else f"{d.ranks} × {d.device}",
        status,
    ]
    return Text(" · ".join(parts), "bright_black")


def _comparison_cells(row: Row) -> tuple[str, str, str, str]:
    if row.unit == "%":
        change = "" if row.a is None or row.b is None else points(row.b - row.a)
        a, b = ("–" if v is None else percent(v) for v in (row.a, row.b))
        return row.label, a, b, change
    change = "" if row.a is None or row.b is None or not row.a else times(row.b / row.a, 2)
    a, b = ("–" if v is None else _with_unit(v, row.unit) for v in (row.a, row.b))
    return row.label, a, b, change


def _state(d: Diagnosis) -> Text:
    return Text(d.verdict.state, COLOURS[d.verdict.state])


def _spread(spread: Spread) -> str:
    return f"{_ms(spread.p50)} typical, {_ms(spread.p95)} p95, {_ms(spread.max)} longest"


def _ms(value: float) -> str:
    return duration(value / 1e3)


def _with_unit(value: float, unit: str) -> str:
    return _ms(value) if unit == "ms" else f"{rate(value)} {unit}"
