"""Settings that were tried: the search for workers, and the diagnosis of a loader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unstarve.model import Advice, LoaderDiagnosis, ProfiledFunction, Tried, WorkerSearch
from unstarve.present.terminal.report_card import advice_list
from unstarve.present.terminal.screen import for_screen
from unstarve.words import interval, percent, rate

_BAR_WIDTH = 24


def print_search(result: WorkerSearch, console: Console) -> None:
    """Print the answer, then what was tried."""
    result = for_screen(result)
    console.print(Panel(Text(result.headline, "bold"), border_style="cyan", box=box.ROUNDED))
    console.print(Padding(workers_table(result), (0, 1)))
    _print_code(result.code, result.notes, console)
    _print_advice(result.advice, console)


def print_loader_diagnosis(result: LoaderDiagnosis, console: Console) -> None:
    """Print the answer, the findings, the tables behind them and the recommended call."""
    result = for_screen(result)
    console.print(Panel(Text(result.headline, "bold"), border_style="cyan", box=box.ROUNDED))
    told = Table.grid(padding=(0, 1))
    for finding in result.findings:
        told.add_row("·", Text(finding))
    console.print(Padding(told, (0, 1)))
    console.print(Text("\n workers", "bold"))
    console.print(Padding(workers_table(result.workers), (0, 1)))
    for name, tried in (("batch size", result.batch_sizes), ("prefetch", result.prefetch)):
        if len(tried) > 1:
            console.print(Text(f"\n {name}", "bold"))
            console.print(Padding(_table(in_order(tried), name), (0, 1)))
    if result.functions:
        console.print(Text("\n functions of a sample", "bold"))
        console.print(Padding(_functions(result.functions), (0, 1)))
    console.print(Text("\n recommended", "bold"))
    _print_code(result.code, result.notes, console)
    _print_advice(result.advice, console)


def workers_table(result: WorkerSearch) -> Table:
    """Rates by number of workers; the recommended number is marked."""
    return _table(result.tried, "workers", chosen=result.num_workers)


def in_order(tried: Sequence[Tried]) -> list[Tried]:
    """Sort by batch size, then by prefetch factor."""
    return sorted(tried, key=lambda one: (one.setting.batch_size or 0, one.setting.prefetch_factor or 0))


def value_of(one: Tried, name: str) -> int | None:
    """The value of the setting that a table of this name varies."""
    setting = one.setting
    by_name = {
        "workers": setting.num_workers,
        "batch size": setting.batch_size,
        "prefetch": setting.prefetch_factor,
    }
    return by_name[name]


def called(one: ProfiledFunction) -> str:
    """``decode (data.py:12)``; a built-in function has only a name."""
    return f"{one.name} ({PurePath(one.file).name}:{one.line})" if one.line else one.name


def _table(tried: Sequence[Tried], name: str, chosen: int | None = None) -> Table:
    table = Table.grid(padding=(0, 2))
    best = max(one.rate for one in tried)
    for one in tried:
        value = value_of(one, name)
        filled = round(one.rate / best * _BAR_WIDTH)
        bar = Text("█" * filled, "blue") + Text("░" * (_BAR_WIDTH - filled), "bright_black")
        between = interval(one.low, one.high, 2) if len(one.rates) > 1 else "(once)"
        mark = Text("recommended" if chosen is not None and value == chosen else "", "bold")
        table.add_row(Text(str(value), justify="right"), bar, f"{rate(one.rate)} samples/s", between, mark)
    return table


def _functions(functions: Sequence[ProfiledFunction]) -> Table:
    table = Table.grid(padding=(0, 2))
    for one in functions:
        table.add_row(Text(percent(one.share), justify="right"), Text(called(one), overflow="fold"))
    return table


def _print_advice(advice: Sequence[Advice], console: Console) -> None:
    shown = advice_list(advice)
    if shown is not None:
        console.print(Text("\n to load faster still", "bold"))
        console.print(Padding(shown, (0, 1)))


def _print_code(code: str, notes: Sequence[str], console: Console) -> None:
    console.print()
    console.print(Padding(Text(code, "cyan", overflow="fold"), (0, 3)))
    for note in notes:
        console.print(Text("· ", "bright_black") + Text(note, "default"))
