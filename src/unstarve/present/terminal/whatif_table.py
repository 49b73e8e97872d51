"""Predicted throughput as a table of 80 columns."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unstarve.intervals import WORTH_IT
from unstarve.model import Forecast, WhatIf
from unstarve.present.terminal.screen import for_screen
from unstarve.words import interval, percent, rate, times, workers

_COSTS = {
    "recorded": "costs of the hand-off and of new workers: recorded in this run",
    "measured": "costs of the hand-off and of new workers: measured on the machine of this run",
    "typical": "costs of the hand-off and of new workers: typical values, not measured on the run's machine",
}
_MARK_WIDTH = len("recorded,")


def print_whatif(result: WhatIf, console: Console) -> None:
    """Print the best choice, then a line for every setting."""
    result = for_screen(result)
    console.print(Panel(Text(headline(result), "bold"), border_style="cyan", box=box.ROUNDED))
    console.print(Padding(_table(result), (0, 1)))
    for note in (*result.notes, _COSTS[result.costs]):
        console.print(Text("· ", "bright_black") + Text(note, "default"))


def headline(result: WhatIf) -> str:
    """The best choice in one sentence."""
    enough, recorded = result.enough, result.recorded
    gain = enough.speedup / recorded.speedup
    if gain < WORTH_IT:
        if enough.setting.workers < recorded.setting.workers:
            now = _named(recorded, result)
            return f"With {_named(enough, result)} training would run as fast as with the recorded {now}."
        return f"The recorded setting, {_named(recorded, result)}, is about as good as any other."
    between = interval(enough.speedup_low, enough.speedup_high)
    return (
        f"With {_named(enough, result)} training would run {times(enough.speedup)} as fast {between} "
        f"as with {_named(recorded, result)}."
    )


def _named(one: Forecast, result: WhatIf) -> str:
    """``4 workers``, and the other settings where they vary."""
    words = [workers(one.setting.workers)]
    if _several(result, lambda o: o.setting.prefetch if o.setting.workers else 0) and one.setting.prefetch:
        words.append(f"prefetch_factor={one.setting.prefetch}")
    if _several(result, lambda o: o.setting.batch_size):
        words.append(f"batch_size={one.setting.batch_size}")
    return ", ".join(words)


def _several(result: WhatIf, of: Callable[[Forecast], int | None]) -> bool:
    return len({of(one) for one in result.curve} - {0}) > 1


def _table(result: WhatIf) -> Table:
    by_samples = all(one.samples_per_s is not None for one in result.curve)
    deep = _several(result, lambda o: o.setting.prefetch if o.setting.workers else 0)
    sized = _several(result, lambda o: o.setting.batch_size)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    names = ["workers", *(["prefetch"] if deep else []), *(["batch"] if sized else [])]
    for name in (*names, "samples/s" if by_samples else "steps/s", "between", "waits", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", min_width=_MARK_WIDTH)
    for one in result.curve:
        prefetch, size = one.setting.prefetch, one.setting.batch_size
        per_s = one.samples_per_s if by_samples and one.samples_per_s is not None else one.steps_per_s
        low, high = (per_s * bound / one.steps_per_s for bound in (one.low, one.high))
        cells = [str(one.setting.workers)]
        cells += ["–" if prefetch is None else str(prefetch)] if deep else []
        cells += ["–" if size is None else str(size)] if sized else []
        between = f"{rate(low, short=True)}–{rate(high, short=True)}"
        cells += [rate(per_s, short=True), between, percent(one.wait_share), times(one.speedup, 2)]
        table.add_row(*cells, Text(_marks(one), "bold"))
    return table


def _marks(one: Forecast) -> str:
    marks = {"recorded": one.recorded, "best": one.best, "enough": one.enough}
    return ", ".join(name for name, holds in marks.items() if holds)
