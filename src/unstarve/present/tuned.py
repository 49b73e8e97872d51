"""What `unstarve tune` found: while it goes on a line per trial, in the end a table and the answer."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unstarve.model import LoaderSettings, Trial
from unstarve.model.tune_run import Tried, TunedLoader, TuneRun
from unstarve.present.terminal.screen import for_screen
from unstarve.words import duration, interval, percent, printable, rate, size, times

_WIDE = 78
"""Columns of a terminal that a trial's bar fits into."""
_COLUMNS = ("workers", "prefetch", "samples/s", "between", "waits", "memory", "against now")
_FEWER_COLUMNS = ("workers", "prefetch", "samples/s", "against now")
_BAR = 20
_IMAGES = (
    "unstarve reads the images then: the same files, order and targets; pixels differ as two JPEG decoders"
    " do, and random crops come from other random numbers"
)
_THREADS = "* threads instead of worker processes: images are read by unstarve"


def in_words(settings: LoaderSettings) -> str:
    """As it is written in a call: ``num_workers=8, prefetch_factor=4``."""
    depth = "" if settings.prefetch_factor is None else f", prefetch_factor={settings.prefetch_factor}"
    reader = "ImageFolderDataset in unstarve.DataLoader, " if settings.images else ""
    return f"{reader}num_workers={settings.num_workers}{depth}"


def trial_line(name: str, trial: Trial, best_per_s: float, width: int) -> Text:
    """One trial, when it is over; the bar compares it with the fastest so far."""
    filled = round(_BAR * min(trial.samples_per_s / best_per_s, 1.0)) if best_per_s > 0 else 0
    settings = trial.settings
    depth = "" if settings.prefetch_factor is None else f" × {settings.prefetch_factor} ahead"
    tried = f"{_makers(settings)}{depth}"
    wait = "" if trial.wait_share is None else f", waits {percent(trial.wait_share)}"
    line = Text("unstarve: ", "bright_black") + Text(f"{printable(name)}  {tried:<22}")
    if width >= _WIDE:
        line += Text("█" * filled, "blue") + Text("░" * (_BAR - filled), "bright_black")
    line += Text(f" {rate(trial.samples_per_s)} samples/s{wait}")
    return line + Text(" (images by unstarve)" if settings.images else "", "bright_black")


def _makers(settings: LoaderSettings) -> str:
    kind = "thread" if settings.images else "worker"
    return f"{settings.num_workers} {kind}{'' if settings.num_workers == 1 else 's'}"


def print_tuning(run: TuneRun, tables: Sequence[Sequence[Tried]], console: Console) -> None:
    """The result: `tables` has what was tried for each of the loaders that were tuned."""
    run = for_screen(run)
    if not run.tuned:
        console.print(_nothing(run))
    for loader, lines in zip(run.tuned, tables, strict=True):
        console.print(_card(loader))
        if lines:
            console.print(Padding(_table(lines, console), (0, 1)))
        if any(line.settings.images for line in lines):
            console.print(Padding(Text(_THREADS, "bright_black"), (0, 1, 1, 1)))
    for loader in run.loaders:
        if loader.tuning is None and loader.left_alone is not None:
            console.print(Text(f"· {_title(loader)} was left alone: {loader.left_alone}", "bright_black"))
    console.print(_footer(run))


def headline(loader: TunedLoader) -> str:
    """The answer, in one sentence."""
    tuning = loader.tuning
    assert tuning is not None
    if not loader.was_measured:
        return "Training ended before anything was measured: it needs more steps."
    if tuning.keep:
        sure = "" if tuning.settled else ", as far as is known"
        return f"Keep what you have{sure}: {in_words(tuning.before)}."
    gain = tuning.gain
    faster = "" if gain is None else f": {times(gain.ratio, 2)} as fast {interval(gain.low, gain.high, 2)}"
    sure = "Use" if tuning.settled else "So far the best is"
    return f"{sure} {in_words(tuning.chosen)}{faster}."


def _title(loader: TunedLoader) -> str:
    where = "" if loader.tuning is None or loader.tuning.where is None else f" ({loader.tuning.where})"
    return f"{loader.name}{where}"


def _card(loader: TunedLoader) -> Panel:
    tuning = loader.tuning
    assert tuning is not None
    colour = "cyan" if not tuning.settled else "green" if not tuning.keep else "blue"
    lines: list[RenderableType] = [Text(headline(loader), "bold")]
    if not tuning.keep:
        lines.append(Text(f"· now it is {in_words(tuning.before)}"))
    if tuning.chosen.images:
        lines.append(Text(f"· {_IMAGES}"))
    if tuning.settled and (tuning.keep or tuning.gain is None):  # else the headline has said why
        lines.append(Text(f"· {tuning.reason}"))
    elif not tuning.settled and loader.was_measured:
        lines.append(Text("· tuning was not finished: more steps would tell more"))
    lines += [Text(f"· {note}") for note in tuning.notes]
    title = Text(f" {_title(loader)} ", "bold")
    return Panel(Group(*lines), title=title, title_align="left", border_style=colour, box=box.ROUNDED)


def _table(lines: Sequence[Tried], console: Console) -> Table:
    """All columns where they fit, closer together if need be; else those that matter most."""
    room = console.options.update(max_width=1000)
    for columns, apart in ((_COLUMNS, 1), (_COLUMNS, 0), (_FEWER_COLUMNS, 1)):
        table = _with_columns(lines, columns, apart)
        if Measurement.get(console, room, table).maximum <= console.width - 2:
            break
    return table


def _with_columns(lines: Sequence[Tried], shown: Sequence[str], apart: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, apart))
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for line in lines:
        depth = line.settings.prefetch_factor
        memory = (line.rss_bytes or 0) + (line.shm_bytes or 0)
        cells = {
            "workers": f"{line.settings.num_workers}{'*' if line.settings.images else ''}",
            "prefetch": "–" if depth is None else str(depth),
            "samples/s": rate(line.samples_per_s),
            "between": f"{rate(line.low)}–{rate(line.high)}",
            "waits": "–" if line.wait_share is None else percent(line.wait_share),
            "memory": size(memory) if memory else "–",
            "against now": "–" if line.speedup is None else times(line.speedup, 2),
        }
        style = "bold" if line.chosen else ""
        mark = ", ".join(word for word, holds in (("now", line.own), ("best", line.chosen)) if holds)
        table.add_row(*(cells[name] for name in shown), mark, style=style)
    return table


def _nothing(run: TuneRun) -> Text:
    if not run.loaders:
        return Text(
            "Nothing was tuned: the command iterated no torch DataLoader, or only such as iterate in a "
            "way of their own.",
            "bold",
        )
    return Text("Nothing was tuned.", "bold")


def _footer(run: TuneRun) -> Text:
    how = {
        "settled": "stopped when tuning was done",
        "budget": "stopped when the budget was spent",
        "interrupt": "interrupted",
    }
    steps = sum(loader.steps for loader in run.loaders)
    parts = [
        f"{duration(run.seconds)}, {steps} steps",
        how.get(run.ended_by or "", f"exit code {run.exit_code}"),
    ]
    if run.ranks > 1:
        parts.append(f"{run.ranks} ranks, of which this is the first")
    return Text(" · ".join(parts), "bright_black")
